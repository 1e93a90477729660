"""What trains models, times them, or starts a process for each test."""
