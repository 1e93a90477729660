"""Models that grow as a run grows them."""
