"""Messages: sealed, opened, agreed on, folded."""
