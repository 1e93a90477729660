"""A seed's module: made, weighed and tried."""
