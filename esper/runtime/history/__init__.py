"""A run's log: archived, audited, compared, retraced."""
