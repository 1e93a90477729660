"""What is measured: each module names its rows in ROWS."""
