"""Random lives of seeds on several ranks, each with a process of its own, held against one another and a bare twin."""
