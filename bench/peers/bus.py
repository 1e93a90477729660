"""Sealed messages of ours beside bare redis-py and libraries that carry work over Redis: how many, and how soon."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from esper.bench.row import Measurement
from peers.carrying import soon, throughput

FAMILY = "peers"
ROWS = (
    Measurement("peers-throughput-command", FAMILY, partial(throughput, "peers-throughput-command", "command")),
    Measurement("peers-throughput-packet", FAMILY, partial(throughput, "peers-throughput-packet", "packet")),
    Measurement("peers-latency-command", FAMILY, partial(soon, "peers-latency-command", "command")),
)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
