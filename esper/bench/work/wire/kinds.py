"""Sizes of every kind of message, and what it costs to serialise, parse, seal and open it, beside a bare HMAC."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.row import Comparison
from esper.bench.statistics.samples import ratio_of
from esper.bench.timing.clock import timed
from esper.bench.timing.opened import agree
from esper.bench.timing.pairs import Timed, in_turns
from esper.bench.work.wire import sealing
from esper.bench.work.wire.messages import MESSAGES

ROW = "message-kinds"
TARGET_BYTES, ASPIRED_BYTES = 280.0, 200.0  # performance validation, 1.1: of a SystemStatePacket
TARGET_US, ASPIRED_US = 80.0, 50.0
WARM = 10

LIMIT = "hmac"
WAYS = {
    LIMIT: sealing.digest,
    "serialise": sealing.serialising,
    "parse": sealing.parsing,
    "seal": sealing.sealing,
    "open": sealing.opening,
}
SEALED = ("seal", "open")
"""Each as a ratio to one HMAC over the same sealed bytes."""


def measure(effort: Effort) -> Iterator[Figure]:
    """Sizes in bytes, and medians in microseconds; all kinds and ways take turns. Raises DisagreementError where the
    ways of a kind come to different messages."""
    for name in MESSAGES:
        yield from sizes(name)
    taken = turns(effort)
    for (name, way), values in taken.items():
        vs = ratio_of(values, taken[name, LIMIT], f"{name}, {LIMIT}") if way in SEALED else None
        median = statistics.median(values)
        figure = Figure(ROW, f"{name}, {way}", "p50", median, "us", len(values), vs=vs, samples=values)
        yield figure.aimed(TARGET_US, ASPIRED_US) if way == "serialise" else figure


def sizes(name: str) -> Iterator[Figure]:
    kind = sealing.Wire(name)
    body, sealed = len(kind.message.SerializeToString()), len(kind.seal())
    yield Figure(ROW, f"{name}, body", "count", float(body), "bytes", 1)
    figure = Figure(ROW, f"{name}, sealed", "count", float(sealed), "bytes", 1)
    is_asked = name in ("system state", "telemetry packet")
    yield figure.aimed(TARGET_BYTES, ASPIRED_BYTES) if is_asked else figure


def turns(effort: Effort) -> dict[tuple[str, str], list[float]]:
    """Microseconds of each call, in an order drawn anew for each round."""
    arms: dict[tuple[str, str], Timed] = {}
    for name in MESSAGES:
        ready = {way: make(name) for way, make in WAYS.items()}
        agree(Comparison(f"{ROW}, {name}", "wire", ()), ready)
        arms |= {(name, way): timed(each) for way, each in ready.items()}
    samples = in_turns(arms, effort.min_pairs, random.Random(effort.seed), warm=WARM)
    return {arm: [1e6 * seconds for seconds in values] for arm, values in samples.items()}
