"""The aggregators (Narset): windows and mergeable statistics."""
