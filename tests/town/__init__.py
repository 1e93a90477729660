"""A run without Redis, in which leaders, ranks and their logs meet in any order."""
