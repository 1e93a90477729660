"""What it costs that workers agree."""

from __future__ import annotations

from esper.bench.lazily import lazily, measured_by
from esper.bench.row import Comparison, Measurement, Row

RULE = Comparison(
    "barrier-rule",
    "consensus",
    arms=(lazily("votes collected", "wire.consensus:collected"), lazily("the rule", "wire.consensus:ruled")),
    unit="us",
    shape="one round of eight votes, in the process",
    limit="votes collected",
)

ROWS: tuple[Row, ...] = (
    Measurement("consensus-round", "consensus", measured_by("wire.consensus:rounds"), times=30.0),
    RULE,
)
