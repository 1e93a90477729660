"""The rows of bench/bus.py: which arms take turns, and what is told of them."""
