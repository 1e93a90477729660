"""A terminal screen of a live run."""
