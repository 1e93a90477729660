"""What slots and an attached run add to a step under load (promise 1): rows of the suite, as a script."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

ROWS_OF_STEPS = ("step-overhead", "attached", "attached-large")

if __name__ == "__main__":
    from script import main

    main(ROWS_OF_STEPS)
