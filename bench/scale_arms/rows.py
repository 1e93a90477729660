"""1 to 16 processes that write, 1 to 64 groups that read, votes of 1 to 64 seeds: what the server works for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import redis

from bus_arms.traffic import RUN
from bus_rows.session import Amounts, Session
from esper.bench.effort import Mode
from esper.bench.figures import Figure
from esper.bench.rounds.part import PartError
from esper.bus import names

WRITER, SETTLER = "scale_arms.writer", "scale_arms.settler"
VOTES, DECISIONS = names.key(RUN, "votes"), names.key(RUN, "decisions")
TELEMETRY = names.region_key(RUN, "north", "telemetry")
ARMS = ("telemetry", "again", "bare", "votes")
PROCESSES, GROUPS, SEEDS = (1, 2, 4, 8, 16), (1, 4, 16, 64), (0, 1, 8, 64)
# `num`: entries of a stream; `seconds`: that writers write.
AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": Amounts(num=200, rounds=3, seconds=0.4),
    "gate": Amounts(num=500, rounds=5, seconds=1.0),
    "full": Amounts(num=1_000, rounds=7, seconds=1.5),
}


@dataclass
class Cost:
    """Seconds of processor time that the server used while a block ran."""

    session: Session
    seconds: float = 0.0

    def __enter__(self) -> Cost:
        self.seconds = self._used()
        return self

    def __exit__(self, *ended: object) -> None:
        self.seconds = self._used() - self.seconds

    def _used(self) -> float:
        with client_of(self.session) as client:
            facts: Any = client.info("cpu")
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])


def client_of(session: Session) -> redis.Redis:
    return redis.Redis.from_url(session.url)


def carried(session: Session) -> None:
    """Messages per second of 1 to 16 writers at once."""
    for num in PROCESSES:
        slices: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for _ in range(session.amounts.rounds):
            for what in session.order.sample(ARMS, len(ARMS)):
                slices[what].append(slice_of(session, what, num))
        put_slices(session, f"{num} writers", slices)


def put_slices(session: Session, row: str, slices: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Rates of each arm, what they cost the server, and what it kept."""
    seconds = session.amounts.seconds
    rates = {what: [rate for rate, _, _ in found] for what, found in slices.items()}
    nums = {what: round(sum(values) * seconds / len(values)) for what, values in rates.items()}
    session.report.add_rates(row, rates, nums, "telemetry")
    for what, found in slices.items():
        total = round(sum(rates[what]) * seconds)
        put_cost(session, row, what, [cost for _, cost, _ in found], total)
        session.report.add(row, what, "p50", median(kept for _, _, kept in found), "B/msg", total)


def slice_of(session: Session, what: str, num: int) -> tuple[float, float, float]:
    """Messages a second of all writers together, milliseconds of the server per 1,000, bytes kept of each."""
    stream = VOTES if what == "votes" else TELEMETRY
    with client_of(session) as client:
        client.delete(stream)
    writers = [f"{WRITER}:{number}" for number in range(num)]
    with Cost(session) as cost:
        for writer in writers:
            session.tell(writer, "publish", what=what, stream=stream, seconds=session.amounts.seconds)
        found = [session.answer(writer) for writer in writers]
    total = sum(count for count, _ in found)
    with client_of(session) as client:
        kept: Any = client.memory_usage(stream)
    return sum(count / seconds for count, seconds in found), cost.seconds / total * 1e6, kept / total


def fanned_out(session: Session) -> None:
    """What a decision costs that many workers read and settle, each under a group of its own."""
    for num in GROUPS:
        samples: dict[str, list[float]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for _ in range(session.amounts.rounds):
            for arm, together in session.order.sample([("singly", 1), ("together", 256)], 2):
                entries = max(20, session.amounts.num // num)
                fill(session, entries, 1)
                with Cost(session) as cost:
                    total, _ = session.ask(SETTLER, "settle", stream=DECISIONS, num_groups=num, together=together)
                if total != entries * num:
                    raise PartError(arm, f"settled {total} deliveries of {entries * num}")
                samples[arm].append(cost.seconds / total * 1e6)
                counts[arm] += total
        for arm, values in samples.items():
            put_cost(session, f"{num} groups", arm, values, counts[arm])


def grown(session: Session) -> None:
    """How a vote grows with the seeds whose states are in it, and what its way through Redis costs."""
    for seeds in SEEDS:
        values, size, entries = list[float](), 0, session.amounts.num
        for _ in range(session.amounts.rounds):
            with Cost(session) as cost:
                size = fill(session, entries, seeds)
                session.ask(SETTLER, "settle", stream=DECISIONS, num_groups=1, together=256)
            values.append(cost.seconds / entries * 1e6)
        arm = f"vote of {seeds} seeds" if seeds else "frame"
        put_cost(session, "grown", arm, values, entries * len(values))
        session.report.add("grown", arm, "mean", size, "B", 1)


def fill(session: Session, entries: int, seeds: int) -> int:
    """Bytes of each entry of a new stream."""
    with client_of(session) as client:
        client.delete(DECISIONS)
    return int(session.ask(SETTLER, "fill", stream=DECISIONS, num=entries, seeds=seeds))


def put_cost(session: Session, row: str, arm: str, values: list[float], num: int) -> None:
    """Milliseconds of the server's processor time per 1,000 messages, the same as microseconds each."""
    session.report.put(Figure(row, arm, "p50", median(values), "ms/1000", num, samples=values))
