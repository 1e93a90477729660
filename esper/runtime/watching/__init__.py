"""A live run seen from outside; its receipts."""
