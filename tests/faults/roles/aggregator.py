"""The aggregator of a region or of the run as it is, but for a shorter lease, so that short faults outlast it."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from esper.runtime import process
from esper.runtime.aggregator import loop


def main() -> None:
    told = json.loads(sys.argv[1])
    loop.RECLAIM_AFTER_MS = told["reclaim_after_ms"]  # before the worker takes it from there
    process.run(import_module(f"esper.workers.{told['tier']}").main)


if __name__ == "__main__":
    main()
