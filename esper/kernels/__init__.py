"""Blueprints of seeds (Urza's later library)."""
