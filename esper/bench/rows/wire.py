"""What messages cost: sealing and opening, serialising and parsing, their sizes, and what the collector must track."""

from __future__ import annotations

from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Goal, Measurement, Row

HMAC_US, HMAC_ASPIRED_US = 500.0, 300.0  # unified design, 7: HMAC verification below 0.5 ms, found below 0.3
SEAL_US, OPEN_US = 4.0, 5.0  # asked of what takes some 280 bytes sealed
MESSAGE_US = 100.0  # the same: more than 10,000 authenticated messages a second
SERIALISE_US, SERIALISE_ASPIRED_US = 80.0, 50.0  # performance validation, 1.1
P95_US = 120.0  # performance validation, 2.1: allowed at the 95th percentile
CALLS = 1_000  # of a few tenths of a microsecond, about what reading the clock takes

FRAME = "frame of 32 packets"
SEALED = {
    "hmac-verify": "adaptation command",
    "hmac-verify-packet": "telemetry packet",
    "hmac-verify-state": "system state",
    "hmac-verify-frame": FRAME,
}
SERIALISED = {
    "message-state": "system state",
    "message-command": "adaptation command",
    "message-packet": "telemetry packet",
}


def sealed(row: str, message: str) -> Comparison:
    small = (Goal("seal", "p50", SEAL_US), Goal("open", "p50", OPEN_US)) if message != FRAME else ()
    return Comparison(
        row,
        "wire",
        arms=(
            lazily("hmac", "wire.sealing:digest", message),
            lazily("hmac from states", "wire.sealing:digest_from_states", message),
            lazily("seal", "wire.sealing:sealing", message),
            lazily("open", "wire.sealing:opening", message),
            lazily("open once", "wire.sealing:opening", message, True),
        ),
        unit="us",
        shape=message,
        goals=(*small, Goal("open once", "p50", HMAC_US, HMAC_ASPIRED_US), Goal("open once", "mean", MESSAGE_US)),
        limit="hmac",
    )


def serialised(row: str, message: str) -> Comparison:
    return Comparison(
        row,
        "wire",
        arms=(
            lazily("bytes copied", "wire.sealing:copying", message),
            lazily("serialise", "wire.sealing:serialising", message),
            lazily("parse", "wire.sealing:parsing", message),
            lazily("build and serialise", "wire.sealing:building", message),
        ),
        unit="us",
        shape=message,
        goals=(Goal("serialise", "mean", SERIALISE_US, SERIALISE_ASPIRED_US), Goal("serialise", "p95", P95_US)),
        limit="bytes copied",
        calls=CALLS,
    )


ROWS: tuple[Row, ...] = (
    *(sealed(row, message) for row, message in SEALED.items()),
    *(serialised(row, message) for row, message in SERIALISED.items()),
    Measurement("message-kinds", "wire", measured_by("wire.kinds:measure")),
    Measurement("gc-allocations", "wire", measured_by("wire.tracked:measure"), times=1.0),
)
