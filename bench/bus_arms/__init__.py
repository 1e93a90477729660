"""What bench/bus.py measures: each arm a process of its own that does one slice at a time, when told to."""
