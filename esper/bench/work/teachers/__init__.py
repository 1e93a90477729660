"""Teachers and students, with and without checkpointing."""
