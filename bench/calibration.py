"""How often gate G4's lower bound holds on data that nothing has seen; as a script: over 600 seeds."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from esper.bench.lazily import measured_by
from esper.bench.row import Measurement
from kasmina_rows.table import HERE

FAMILY = "calibration"
ROWS = (Measurement(FAMILY, FAMILY, measured_by("calibrated:measure", HERE), times=4.6),)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
