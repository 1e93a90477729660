"""Rows of the telemetry benchmark."""
