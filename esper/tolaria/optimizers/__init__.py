"""The host's optimizer and the seeds' own."""
