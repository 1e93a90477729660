"""What bench/kasmina.py measures: one file a row, each with measure(report, quick)."""
