"""What work takes of memory: peaks, what is retained, objects that the collector tracks."""
