"""Which release this code is, also where it is not installed."""

__version__ = "0.1.0"
