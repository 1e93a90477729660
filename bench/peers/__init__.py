"""Rows beside what others have made, for `esper bench run --from bench/peers/FILE.py`; they need the group `peers`."""
