"""The report of a run: one HTML file that opens without a server and asks no other host for anything."""
