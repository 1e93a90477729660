"""Processes of the telemetry benchmark."""
