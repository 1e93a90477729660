"""Two revisions of the checkout in one interleaved run."""
