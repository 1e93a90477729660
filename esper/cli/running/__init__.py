"""What keeps a run of this machine going."""
