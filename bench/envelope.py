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
from esper.leyline.mac import Mac
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from report import Report, options

KEY = bytes(range(32))
PERSIST_EVERY = 256  # messages that a busy consumer settles at once
METRICS = {"loss": 0.41, "lr": 0.001, "acc": 0.93, "norm": 1.7, "step_ms": 0.8}


def command() -> Message:
    seed = pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint_id="lora")
    kind = pb.CommandType.COMMAND_SEED
    return pb.AdaptationCommand(version=1, command_id="c-0001", command_type=kind, seed_command=seed)


def packet() -> Message:
    return pb.TelemetryPacket(version=1, sequence=1, global_step=1, values=METRICS)


def state() -> Message:
    hardware = pb.HardwareContext(device_type="cuda", device_id="0", total_memory_gb=40, utilization_percent=85)
    return pb.SystemStatePacket(
        version=1,
        current_epoch=5000,
        validation_accuracy=0.987,
        validation_loss=0.045,
        timestamp_ns=time.time_ns(),
        hardware_context=hardware,
        training_metrics={"loss": 0.045, "accuracy": 0.987, "lr": 0.001, "gradnorm": 1.23},
    )


def frame() -> Message:
    packets = [pb.TelemetryPacket(version=1, sequence=1 + at, global_step=at, values=METRICS) for at in range(32)]
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=7, region="eu", packets=packets)


ROWS = {
    "adaptation command": (command(), Role.CONTROLLER, Domain.COMMAND, Role.WORKER),
    "telemetry packet": (packet(), Role.WORKER, Domain.TELEMETRY, Role.REGIONAL),
    "system state": (state(), Role.WORKER, Domain.STATE, Role.OBSERVER),
    "frame of 32 packets": (frame(), Role.WORKER, Domain.TELEMETRY, Role.REGIONAL),
}


def bare(data: bytes) -> Callable[[], None]:
    """The least that authentication can cost: one digest by the library's one call."""

    def turn() -> None:
        hmac.digest(KEY, data, "sha256")

    return turn


def states(data: bytes) -> Callable[[], None]:
    mac = Mac(KEY)

    def turn() -> None:
        mac.digest(data)

    return turn


def sealing(message: Message, sealer: Sealer) -> Callable[[], None]:
    def turn() -> None:
        sealer.seal(message)

    return turn


def opening(message: Message, sealer: Sealer, opener: Opener, guard: ReplayGuard | None) -> Callable[[], None]:
    """Open messages that were sealed before; what was met is taken to be persisted as a busy consumer does."""
    entries = count(1)
    stock: list[tuple[bytes, str, int]] = []

    def stocked() -> tuple[bytes, str, int]:
        now_ms = time.time_ns() // 1_000_000
        return sealer.seal(message), f"{now_ms}-{next(entries)}", now_ms

    def refill() -> None:
        stock.extend(stocked() for _ in range(PERSIST_EVERY))
        stock.reverse()
        if guard is not None:
            guard.changed()

    def turn() -> None:
        opener.open(*stock.pop())

    turn.before = lambda: None if stock else refill()  # type: ignore[attr-defined]
    return turn


def arms_of(message: Message, role: Role, domain: Domain, reader: Role) -> dict[str, Callable[[], None]]:
    master = MasterKeyring.new(time.time_ns())
    producer, keys = master.derive("bench-00000001", [role]), master.derive("bench-00000001", [reader])
    guard = ReplayGuard()
    data = Sealer(producer, role, "bench").seal(message)
    return {
        "hmac": bare(data),
        "hmac again": bare(data),
        "hmac from states": states(data),
        "seal": sealing(message, Sealer(producer, role, "bench")),
        "open": opening(message, Sealer(producer, role, "bench"), Opener(keys, guard=None, accept=[domain]), None),
        "open once": opening(
            message, Sealer(producer, role, "bench"), Opener(keys, guard=guard, accept=[domain]), guard
        ),
    }


def timed(turn: Callable[[], None]) -> float:
    before = getattr(turn, "before", None)
    if before is not None:
        before()
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


def main() -> None:
    given, report = options(__doc__, quick=6_000, full=100_000), Report("envelope")
    for row, (message, role, domain, reader) in ROWS.items():
        arms = arms_of(message, role, domain, reader)
        for turn in arms.values():
            for _ in range(200):
                timed(turn)
        samples = interleave(arms, given.num, given.seed)
        keys = MasterKeyring.new(time.time_ns()).derive("bench-00000001", [role])
        report.add(row, "body", "count", len(message.SerializeToString()), "bytes", 1)
        report.add(row, "sealed", "count", len(Sealer(keys, role, "worker-0").seal(message)), "bytes", 1)
        report.add_arms(row, samples, "us", against="hmac")
    report.show(given.as_json)


if __name__ == "__main__":
    main()
