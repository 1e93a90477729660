"""What a run has beside its trainer, in processes of their own."""
