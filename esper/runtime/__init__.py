"""How a process lives: start, serve, drain, stop."""
