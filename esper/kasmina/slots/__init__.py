"""Where seeds join the host's modules."""
