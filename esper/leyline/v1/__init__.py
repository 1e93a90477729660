"""Generated from proto/; see `make proto`."""
