"""What one Redis carries as processes, groups and seeds grow, and what each message costs it."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

from bus_arms.arm import Arm, ArmError
from bus_arms.traffic import RUN
from esper.bench.figures import Figure
from esper.bus import names
from esper.bus.embedded import EmbeddedRedis
from report import Report, quantile

WRITER, SETTLER = "scale_arms.writer", "scale_arms.settler"
STREAMS = {"votes": names.key(RUN, "votes")}
TELEMETRY = names.region_key(RUN, "north", "telemetry")
ARMS = ("telemetry", "again", "bare", "votes")
DECISIONS = names.key(RUN, "decisions")


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured."""

    processes: tuple[int, ...]
    groups: tuple[int, ...]
    seeds: tuple[int, ...]
    seconds: float
    rounds: int
    entries: int


FULL = Amounts((1, 2, 4, 8, 16), (1, 4, 16, 64), (1, 8, 64), 1.5, 7, 1_000)
QUICK = Amounts((1, 4, 16), (1, 16), (1, 64), 0.4, 3, 200)


@dataclass
class Session:
    """One server, and the processes that were started for it."""

    server: EmbeddedRedis
    directory: Path
    amounts: Amounts
    report: Report
    order: random.Random
    arms: dict[str, Arm]

    def arm(self, module: str, number: int = 0) -> Arm:
        name = f"{module}:{number}"
        if name not in self.arms:
            self.arms[name] = Arm(name, self.directory)
        return self.arms[name]

    def tell(self, arm: Arm, call: str, **given: object) -> None:
        arm.tell(call, url=self.server.url, directory=str(self.directory), **given)

    def settler(self, call: str, **given: object) -> Any:
        arm = self.arm(SETTLER)
        self.tell(arm, call, **given)
        return arm.answer(call)

    def redis(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.server.socket))


@dataclass
class Cost:
    """What the server used while a block ran: seconds of processor time, bytes of memory."""

    session: Session
    seconds: float = 0.0
    size: float = 0.0

    def __enter__(self) -> Cost:
        self.seconds, self.size = self._used()
        return self

    def __exit__(self, *ended: object) -> None:
        seconds, size = self._used()
        self.seconds, self.size = seconds - self.seconds, size - self.size

    def _used(self) -> tuple[float, float]:
        with self.session.redis() as client:
            facts: Any = client.info()
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"]), float(facts["used_memory"])


def carried(session: Session) -> None:
    """Messages per second of 1 to 16 writers at once."""
    for num in session.amounts.processes:
        samples: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for _ in range(session.amounts.rounds):
            for what in session.order.sample(ARMS, len(ARMS)):
                samples[what].append(slice_of(session, what, num))
        rates = {what: [one[0] for one in found] for what, found in samples.items()}
        nums = {what: round(sum(values) * session.amounts.seconds / len(values)) for what, values in rates.items()}
        row = f"carried.{num}"
        session.report.add_rates(row, rates, nums, "telemetry")
        for what, found in samples.items():
            total = round(sum(rates[what]) * session.amounts.seconds)
            put_cost(session.report, row, what, [one[1] for one in found], total)
            session.report.put(Figure(row, what, "p50", median([one[2] for one in found]), "B/msg", total))


def slice_of(session: Session, what: str, num: int) -> tuple[float, float, float]:
    """Messages a second of all writers together, milliseconds of the server per 1,000, bytes kept of each."""
    stream = STREAMS.get(what, TELEMETRY)
    with session.redis() as client:
        client.delete(stream)
    writers = [session.arm(WRITER, number) for number in range(num)]
    with Cost(session) as cost:
        for writer in writers:
            session.tell(writer, "publish", what=what, stream=stream, seconds=session.amounts.seconds)
        found = [writer.answer("publish") for writer in writers]
    total = sum(count for count, _ in found)
    return sum(count / seconds for count, seconds in found), cost.seconds / total * 1e6, cost.size / total


def fanned_out(session: Session) -> None:
    """What a decision costs that many workers read and settle, each under a group of its own."""
    for num in session.amounts.groups:
        samples: dict[str, list[float]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for _ in range(session.amounts.rounds):
            for arm, together in session.order.sample([("singly", 1), ("together", 256)], 2):
                entries = max(20, session.amounts.entries // num)
                fill(session, entries, 1)
                with Cost(session) as cost:
                    total, _ = session.settler("settle", stream=DECISIONS, num_groups=num, together=together)
                if total != entries * num:
                    raise ArmError(arm, f"settled {total} deliveries of {entries * num}")
                samples[arm].append(cost.seconds / total * 1e6)
                counts[arm] += total
        for arm, values in samples.items():
            put_cost(session.report, f"fanned_out.{num}", arm, values, counts[arm])


def grown(session: Session) -> None:
    """How a vote grows with the seeds whose states are in it, and what its way through Redis costs."""
    for seeds in (0, *session.amounts.seeds):
        values, size, entries = [], 0, session.amounts.entries
        for _ in range(session.amounts.rounds):
            with session.redis() as client:
                client.delete(DECISIONS)
            with Cost(session) as cost:
                size = session.settler("fill", stream=DECISIONS, num=entries, seeds=seeds)
                session.settler("settle", stream=DECISIONS, num_groups=1, together=256)
            values.append(cost.seconds / entries * 1e6)
        arm = f"vote.{seeds}" if seeds else "frame"
        put_cost(session.report, "grown", arm, values, entries * len(values))
        session.report.put(Figure("grown", arm, "mean", size, "B", 1))


def fill(session: Session, entries: int, seeds: int) -> None:
    with session.redis() as client:
        client.delete(DECISIONS)
    session.settler("fill", stream=DECISIONS, num=entries, seeds=seeds)


def put_cost(report: Report, row: str, arm: str, values: list[float], num: int) -> None:
    """Milliseconds of the server's processor time per 1,000 messages, the same as microseconds each."""
    report.put(Figure(row, arm, "p50", median(values), "ms/1000", num))


def median(values: list[float]) -> float:
    return quantile(values, 0.5)


ROWS = {"carried": carried, "fanned_out": fanned_out, "grown": grown}


def main() -> int:
    given, report, failed = arguments(), Report("scale"), False
    arms: dict[str, Arm] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name, EmbeddedRedis(Path(name) / "redis") as server:
        amounts = QUICK if given.quick else FULL
        session = Session(server, Path(name), amounts, report, random.Random(given.seed), arms)
        try:
            for row in given.row or ROWS:
                try:
                    ROWS[row](session)
                except ArmError as error:
                    failed = True
                    print(f"{row}: {error}", file=sys.stderr)
                    report.add_missing(row, "all", "", f"failed: {error.why}")
        finally:
            for arm in arms.values():
                arm.close()
    report.show(given.json)
    return int(failed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument("--row", action="append", default=[], choices=list(ROWS), help="only this; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which arms take turns")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
