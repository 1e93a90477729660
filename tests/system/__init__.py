"""Real processes, started and killed."""
