"""What each channel and head is worth, and masks that keep the pruned ones at zero."""
