"""The process that decides rounds, and its lease."""
