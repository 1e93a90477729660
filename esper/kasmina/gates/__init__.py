"""The six gates, and their evidence."""
