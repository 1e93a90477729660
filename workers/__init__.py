"""One file per process: settings, objects, serve."""
