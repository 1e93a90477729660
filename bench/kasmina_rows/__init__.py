"""Rows of bench/kasmina.py: a table of them, which loads nothing, and what sets their arms up."""
