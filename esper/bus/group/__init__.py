"""One consumer of a group: reading, settling, reclaiming."""
