"""What a training step costs: one file a row."""
