"""Benchmarks by registration: implementations of one's own beside named baselines."""
