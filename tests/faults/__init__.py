"""Faults made on purpose, histories of what came of them, and a checker that knows nothing of the runtime."""
