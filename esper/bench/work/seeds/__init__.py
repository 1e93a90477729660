"""Seeds and grafts, timed by themselves."""
