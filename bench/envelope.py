"""What sealing and opening a message costs, next to the bare HMAC that it cannot do without."""

from __future__ import annotations

import hmac
import random
import time
from collections.abc import Callable
from itertools import count

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from report import Report, options

KEY = bytes(range(32))


def command() -> Message:
    seed = pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint_id="lora")
    kind = pb.CommandType.COMMAND_SEED
    return pb.AdaptationCommand(version=1, command_id="c-0001", command_type=kind, seed_command=seed)


def frame() -> Message:
    values = {"loss": 0.41, "lr": 0.001, "acc": 0.93, "norm": 1.7, "step_ms": 0.8}
    packets = [pb.TelemetryPacket(version=1, sequence=1 + at, global_step=at, values=values) for at in range(32)]
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=7, region="eu", packets=packets)


def bare_hmac(data: bytes) -> Callable[[], None]:
    """Both ends of the least that authentication can cost: one digest to make, one to compare with."""

    def turn() -> None:
        hmac.compare_digest(hmac.digest(KEY, data, "sha256"), hmac.digest(KEY, data, "sha256"))

    return turn


def seal_and_open(message: Message, role: Role, domain: Domain, reader: Role) -> Callable[[], None]:
    master = MasterKeyring.new(time.time_ns())
    sealer = Sealer(master.derive("bench-00000001", [role]), role, "bench")
    opener = Opener(master.derive("bench-00000001", [reader]), guard=ReplayGuard(), accept=[domain])
    entries = count(1)

    def turn() -> None:
        now_ms = time.time_ns() // 1_000_000
        opener.open(sealer.seal(message), f"{now_ms}-{next(entries)}", now_ms)

    return turn


def timed(turn: Callable[[], None]) -> float:
    start = time.perf_counter_ns()
    turn()
    return (time.perf_counter_ns() - start) / 1_000


def interleave(arms: dict[str, Callable[[], None]], num: int, seed: int) -> dict[str, list[float]]:
    """Each round gives every arm one turn, in an order drawn anew."""
    order, names = random.Random(seed), list(arms)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(num):
        order.shuffle(names)
        for name in names:
            samples[name].append(timed(arms[name]))
    return samples


def arms_of(message: Message, role: Role, domain: Domain, reader: Role) -> dict[str, Callable[[], None]]:
    body = message.SerializeToString()
    ours = seal_and_open(message, role, domain, reader)
    return {"hmac": bare_hmac(body), "hmac again": bare_hmac(body), "seal+open": ours}


def main() -> None:
    given, report = options(__doc__, quick=6_000, full=200_000), Report("envelope")
    rows = {
        "adaptation command": (command(), Role.CONTROLLER, Domain.COMMAND, Role.WORKER),
        "frame of 32 packets": (frame(), Role.WORKER, Domain.TELEMETRY, Role.REGIONAL),
    }
    for row, (message, role, domain, reader) in rows.items():
        arms = arms_of(message, role, domain, reader)
        samples = interleave(arms, given.num, given.seed)
        report.add(row, "body", "count", len(message.SerializeToString()), "bytes", 1)
        report.add_arms(row, samples, "us", against="hmac")
    report.show(given.as_json)


if __name__ == "__main__":
    main()
