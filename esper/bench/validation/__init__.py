"""The performance-validation document's classes: a view of the suite's rows under its keys."""
