"""Random lives of seeds on two ranks, each with a process of its own, held against one another and a bare twin."""
