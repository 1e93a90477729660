"""The teacher of a run: loaded, registered, suspended."""
