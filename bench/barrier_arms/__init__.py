"""Processes between which rounds of the barrier are timed."""
