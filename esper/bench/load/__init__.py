"""Load from outside: asks a running system at a steady rate, and says how long the answers took."""
