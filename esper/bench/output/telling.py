"""Figures as telemetry of a run: one packet each, sealed as a worker of its own, for the region's aggregators."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from esper.bench.figures import Figure
from esper.bench.history.contrast import LEFT_OUT
from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.bus.retry import add_until_answered
from esper.bus.upkeep.survey import regions_of
from esper.errors import SettingError, first_bytes, near
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime import access
from esper.runtime.beside.packets import PACKETS_PER_FRAME

SOURCE = "bench"
_NAME_LENGTH, _LABEL_BYTES = 96, 60  # so that name and labels together stay a name: 255 bytes
_PATIENCE_S = 5.0
MOST_NAMES = 512
"""Half of what a window of the aggregators, or their total, has names for: the other half is the run's own."""


async def tell(
    figures: Sequence[Figure], run: str | None, redis_url: str | None, keyring: Path | None, region: str
) -> int:
    """How many packets Redis has stored: of figures with more names than an aggregate has room for, as in `carried`.
    `keyring`: a worker's; from its directory where the run is an embedded one. `region`: empty for the run's first."""
    found = await access.find(run, redis_url, keyring, role=Role.WORKER)
    sealer = Sealer(found.keyring, Role.WORKER, SOURCE)
    async with connect.writer(found.redis_url) as redis:
        region = folded(region, await regions_of(redis, found.run_id))
        stream = names.region_key(found.run_id, region, "telemetry")
        publisher, told = Publisher(redis), 0
        for frame in frames(carried(figures), region, time.time_ns()):
            await add_until_answered(publisher.add, stream, sealer.seal(frame), _PATIENCE_S)
            told += len(frame.packets)
    return told


def folded(wanted: str, known: Sequence[str]) -> str:
    """The region that is wanted, which must be one of the run's: nobody would fold what another one is told."""
    if not known or (wanted and wanted not in known):
        expected = f"one of {', '.join(known)}{near(wanted, known)}" if known else "a run that has regions by now"
        raise SettingError("--region", wanted, expected)
    return wanted or known[0]


def carried(figures: Sequence[Figure], most: int = MOST_NAMES) -> list[Figure]:
    """Those that are told, in their order: all, or as many as have `most` names. Those with a target come first, then
    medians and counts, and tails last; what was not measured has no name, and is told in any case."""
    named: set[tuple[str, str, str]] = set()
    for figure in sorted(figures, key=_rank):
        if figure.value is not None and len(named) < most:
            named.add(_series(figure))
    return [figure for figure in figures if figure.value is None or _series(figure) in named]


def _rank(figure: Figure) -> int:
    return 0 if figure.target is not None else 2 if figure.stat in LEFT_OUT else 1


def _series(figure: Figure) -> tuple[str, str, str]:
    """What an aggregator tells metrics apart by."""
    return name_of(figure), _label(figure.arm), _label(figure.shape)


def frames(figures: Sequence[Figure], region: str, now_ns: int) -> Iterator[pb.TelemetryFrame]:
    """Of up to 32 packets, under an incarnation of their own."""
    incarnation = secrets.randbits(63) + 1
    packets = [packet(figure, sequence, now_ns) for sequence, figure in enumerate(figures, 1)]
    for start in range(0, len(packets), PACKETS_PER_FRAME):
        inside = packets[start : start + PACKETS_PER_FRAME]
        yield pb.TelemetryFrame(version=1, source=SOURCE, incarnation=incarnation, region=region, packets=inside)


def packet(figure: Figure, sequence: int, now_ns: int) -> pb.TelemetryPacket:
    """A gauge named after row, statistic and unit, labelled with arm and shape; an event where nothing was measured."""
    made = pb.TelemetryPacket(version=1, timestamp_ns=now_ns, level=pb.TelemetryLevel.TELEMETRY_INFO, sequence=sequence)
    if figure.value is None:
        made.events.add(event_id=str(sequence), description=_sentence(figure), level=made.level)
    else:
        labels = {"arm": _label(figure.arm)} | ({"shape": _label(figure.shape)} if figure.shape else {})
        gauge = pb.MetricType.METRIC_GAUGE
        made.metrics.add(name=name_of(figure), value=figure.value, type=gauge, unit=figure.unit, labels=labels)
    return made


def name_of(figure: Figure) -> str:
    """As bench_kd_loss_p50_ms: what ends in a unit is carried to Prometheus in its base unit."""
    words = re.sub(r"\W+", "_", f"bench_{figure.row}_{figure.stat}")[:_NAME_LENGTH]
    unit = re.sub(r"\W+", "_", figure.unit.lower()).strip("_")[:16]
    return f"{words}_{unit}" if unit else words


def _label(text: str) -> str:
    """Without the signs that part labels from one another in an aggregate's names."""
    return first_bytes(re.sub(r"[,={}]", " ", text), _LABEL_BYTES)


def _sentence(figure: Figure) -> str:
    return f"{figure.row}, {figure.arm}, {figure.stat}: {figure.label}"[:1000]
