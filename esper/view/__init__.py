"""A picture of a run, folded from what it says of itself: the same for a terminal, a web page and a report."""
