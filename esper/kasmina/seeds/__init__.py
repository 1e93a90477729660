"""Seeds: their records, their state, kept and restored."""
