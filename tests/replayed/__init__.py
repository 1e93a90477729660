"""Runs that are drawn, lived in one process by the real rules, and run again from the log that they leave."""
