"""Training for hours while seeds come and go, and what drifts meanwhile."""
