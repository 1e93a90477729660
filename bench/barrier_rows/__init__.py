"""What of the barrier is measured, a file for each row."""
