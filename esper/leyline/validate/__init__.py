"""Ranges that every message must keep to."""
