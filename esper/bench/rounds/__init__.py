"""Processes between which rounds of the barrier are timed: the real coordinator and runtimes that train nothing."""
