"""Master keys, and what each process holds."""
