"""What seeds, their optimizers, pruning, checkpoints and teachers cost a step; as a script: all rows at full effort."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from kasmina_rows.table import FAMILY, ROWS as ROWS

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
