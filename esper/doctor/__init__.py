"""Checks a machine and a Redis before a run meets them: facts are probed in one place, and judged in another."""
