"""What a run came to, as a file, a table, lines of JSON, Markdown and telemetry."""
