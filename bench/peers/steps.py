"""What telling of a training step costs the step: ours beside TensorBoard and W&B offline."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from esper.bench.row import Measurement
from peers.telling import telling

NAME = "peers-telemetry-step"
ROWS = (Measurement(NAME, "peers", partial(telling, NAME)),)
