"""Random lives of seeds in one process, held against the same script without Esper."""
