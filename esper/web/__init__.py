"""The run in a browser: pages, their live data, the report of a finished run. Wiring, like the command line."""
