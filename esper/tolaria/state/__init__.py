"""A rank's training state: copied, digested, put back."""
