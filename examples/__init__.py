"""Scripts that a user would write."""
