"""The messages that every arm carries, and the keys that seal them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer

RUN = "bench-0a1b2c3d"
KEY = bytes(range(32))  # of the bare arms
BATCH = 256  # messages a pipeline, and entries a read in every arm that lets one choose
FULL_READ = 1024  # entries that the bare loop asks for
KEPT_S = 20.0  # sealed bytes are put into fresh streams for so long: an entry may be a minute younger than its seal
SEALED_BY = {"packet": Role.WORKER, "command": Role.CONTROLLER}
DOMAINS = {"packet": Domain.TELEMETRY, "command": Domain.COMMAND}
OPENED_BY = {"packet": Role.REGIONAL, "command": Role.COORDINATOR}

# As in the product: looked up once. A name of an enumeration is looked for in three tables at each mention, which took
# 10 us of an awaited publish, where nothing is in the processor's caches any more.
_INFO = pb.TelemetryLevel.TELEMETRY_INFO
_BLEND, _CURVE = pb.SeedOperation.SEED_OP_START_GRAFTING, pb.AlphaCurve.ALPHA_CURVE_COSINE
_SEED, _NORMAL = pb.CommandType.COMMAND_SEED, pb.MessagePriority.MESSAGE_PRIORITY_NORMAL

_stock: dict[str, tuple[float, int, list[bytes]]] = {}


def packet(sequence: int, at_ns: int) -> pb.TelemetryPacket:
    """Five metrics of one step."""
    values = {"loss": 0.4182, "lr": 0.00098, "acc": 0.9312, "gradnorm": 1.7033, "step_ms": 12.81}
    return pb.TelemetryPacket(
        version=1, timestamp_ns=at_ns, level=_INFO, sequence=sequence, global_step=40_000 + sequence, values=values
    )


def command(number: int, at_ns: int) -> pb.AdaptationCommand:
    """Blend a seed in: the command with the most in it that a controller sends every day."""
    seed = pb.SeedCommand(
        seed_id="worker-0/head.2", operation=_BLEND, parameters={"steps": 200.0, "alpha": 0.5}, alpha_curve=_CURVE
    )
    return pb.AdaptationCommand(
        version=1,
        command_id=f"{number}-{at_ns}",
        command_type=_SEED,
        priority=_NORMAL,
        timeout_ms=30_000,
        issued_by="controller-0",
        seed_command=seed,
    )


def message(what: str, number: int, at_ns: int) -> Message:
    return packet(number, at_ns) if what == "packet" else command(number, at_ns)


def number_and_time(met: Message) -> tuple[int, int]:
    """What message() was given."""
    match met:
        case pb.TelemetryPacket():
            return met.sequence, met.timestamp_ns
        case pb.AdaptationCommand():
            number, _, at_ns = met.command_id.partition("-")
            return int(number), int(at_ns)
    raise TypeError(type(met).__name__)


@cache
def master(directory: str) -> MasterKeyring:
    """One for all arms of a run of the benchmark."""
    return MasterKeyring.load(Path(directory) / "master.json")


def sealer(directory: str, role: Role) -> Sealer:
    return Sealer(master(directory).derive(RUN, [role]), role, f"{role.value}-0")


def opener(directory: str, what: str, guard: ReplayGuard | None) -> Opener:
    """Without a guard for a group that others share, whose record of what took effect is in Redis alone."""
    keys = master(directory).derive(RUN, [OPENED_BY[what]])
    return Opener(keys, guard=guard, accept=[DOMAINS[what]])


def sealed(directory: str, what: str, num: int) -> list[bytes]:
    """Messages 1 to `num`, sealed in this order, fresh enough to be put into a stream now."""
    by = sealer(directory, SEALED_BY[what])
    return kept(what, num, lambda: [by.seal(message(what, at, time.time_ns())) for at in range(1, num + 1)])


def kept(what: str, num: int, make: Callable[[], list[bytes]]) -> list[bytes]:
    """What was made of this kind, unless it is another number by now or too old."""
    made_s, made_num, bodies = _stock.get(what, (0.0, 0, []))
    if made_num != num or time.monotonic() - made_s > KEPT_S:
        bodies = make()
        _stock[what] = (time.monotonic(), num, bodies)
    return bodies
