"""How things read in a terminal."""
