"""What bench/scale.py starts: processes that write to one Redis, and readers that settle what they wrote."""
