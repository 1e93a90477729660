"""What telling of a training step costs the step: ours beside TensorBoard and W&B offline."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from esper.bench.row import Measurement
from peers.telling import telling

FAMILY, NAME = "peers", "peers-telemetry-step"
ROWS = (Measurement(NAME, FAMILY, partial(telling, NAME)),)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
