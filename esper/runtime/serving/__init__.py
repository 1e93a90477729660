"""Entries answered one by one, each exactly once."""
