"""`python -m esper` is `esper`."""

from __future__ import annotations

from esper.cli.begin import esper

if __name__ == "__main__":
    esper()
