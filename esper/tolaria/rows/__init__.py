"""Measurements of the loop, on their way out."""
