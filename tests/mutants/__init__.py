"""Bugs planted in a copy of the source, each with the test that must find it."""
