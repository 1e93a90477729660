"""Workers, aggregators and Redis that stand still past timeouts and leases: what they held happens elsewhere, once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from esper.bus import names
from tests.faults.crew import RECLAIM_MS, REGION, TIERS, Crew, crew
from tests.faults.processes import TooLateError, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve

TOTALS = names.key(RUN, "totals")
PLACES = ("worker-a", "worker-b", "worker-c")
PER_S = 400.0
WORK_S = 0.45 * len(PLACES) / PER_S
COUNT = 8  # messages of a read; four times as many make the longest batch, 0.11 s, which is well within a lease
ANSWER_S = 1.0  # a command is given up: shorter pauses reach past that too
SHORTEST_S = 0.2
REFUSED_S = 5.0
TAKEN_S = RECLAIM_MS / 1000 + 2.0
"""What stands still for so long has lost its lease to another, also where that one has a backlog."""


@dataclass(slots=True)
class Stage:
    """Who may be made to stand still, and what is expected of them afterwards."""

    crew: Crew
    result: Result
    chance: random.Random
    longest_s: float
    workers: list[str]
    aggregators: list[str]

    def lasts_s(self) -> float:
        """Long pauses are as rare as they are long."""
        return float(SHORTEST_S * (self.longest_s / SHORTEST_S) ** self.chance.random())

    def pause_worker(self, lasts_s: float) -> None:
        """With work in hand, if it has any within two seconds."""
        name = self.chance.choice(self.workers)
        held = self._stopped_with_work(name)
        before = self.crew.lease_losses(name)
        time.sleep(lasts_s)
        taken = held - set(self.crew.held_by(name))
        self.crew.on[name].resume()
        self.result.count("worker_pauses")
        if done := self._done_by_others(taken):
            self.result.count("stale_leases" if self._is_refused(name, before) else "replies_given_up")
            self.result.count("messages_taken_over", len(done))
        elif held and not taken and lasts_s > TAKEN_S:
            self.result.expect(False, f"nobody took what {name} had held for {lasts_s:.1f} s")

    def pause_aggregator(self, lasts_s: float) -> None:
        child = self.crew.on[self.chance.choice(self.aggregators)]
        child.pause()
        time.sleep(lasts_s)
        child.resume()
        self.result.count("aggregator_pauses")

    def pause_redis(self, lasts_s: float) -> None:
        self.crew.server.pause()
        time.sleep(lasts_s)
        self.crew.server.resume()
        self.result.count("redis_stops")

    def pause_clients(self, lasts_s: float) -> None:
        self.crew.server.pause_clients(lasts_s)
        self.result.count("client_pauses")

    def _stopped_with_work(self, name: str) -> set[str]:
        """Pause a worker; what is pending for it once the server has answered what it was asked before."""
        deadline = time.monotonic() + 2.0
        while True:
            self.crew.on[name].pause()
            for _ in range(2):  # the first may be answered before what the worker sent and the server has not read
                self.crew.client.ping()
            held = set(self.crew.held_by(name))
            if held or time.monotonic() > deadline:
                return held
            self.crew.on[name].resume()

    def _is_refused(self, name: str, before: int) -> bool:
        """Whether it tries to settle what others have: not where it never read the reply that gave it that.

        One that stood still beyond the time in which a reply must come gives up the reply before it looks at it.
        """
        try:
            wait_until(lambda: self.crew.lease_losses(name) > before, f"{name} is refused", REFUSED_S)
        except TooLateError:
            return False
        return True

    def _done_by_others(self, taken: set[str]) -> set[str]:
        """Those that took effect, once all are settled: of a publish whose answer was lost, one of two entries."""
        wait_until(lambda: not taken & set(self.crew.held_by(None)), "what was taken over is settled")
        newest = self.crew.newest_receipt()
        wait_until(lambda: newest in {each["seen_as"] for each in self.crew.applied()}, "the witness has seen it")
        return taken & {each["entry_id"] for each in self.crew.applied()}


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    with serve(directory / "redis", UNKEPT) as server, crew(directory, server) as hands:
        workers = [hands.work(place, work_s=WORK_S, count=COUNT, answer_s=ANSWER_S) for place in PLACES]
        aggregators = [hands.aggregate(tier) for tier in TIERS for _ in range(2)]
        hands.publish("publisher", 10_000_000, PER_S, answer_s=ANSWER_S)
        hands.publish("publisher-telemetry", 10_000_000, 20.0, region=REGION, together=2, answer_s=ANSWER_S)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun")
        wait_until(lambda: bool(hands.client.exists(TOTALS)), "telemetry flows")
        for name in aggregators:  # one that begins while Redis stands still ends with that, as it should
            wait_until(partial(hands.has_begun, name), f"{name} has begun")
        stage = Stage(hands, result, chance, amounts["longest_ms"] / 1000, workers, aggregators)
        for fault in faults(stage, amounts["pauses"]):
            lasts_s = stage.lasts_s()
            fault(lasts_s)
            result.sample("paused_s", lasts_s)
        hands.stop_publishing()
        hands.finish(result)
        result.count("lease_losses", hands.lease_losses())
        result.count("messages", len(hands.applied()))
        result.expect(result.counts.get("stale_leases", 0) > 0, "no pause outlasted a lease")
    return result


def faults(stage: Stage, number: int) -> list[Callable[[float], None]]:
    """Half of them to workers, the rest in turn."""
    others: list[Callable[[float], None]] = [stage.pause_aggregator, stage.pause_redis, stage.pause_clients]
    chosen: list[Callable[[float], None]] = [
        stage.pause_worker if each % 2 == 0 else others[each // 2 % len(others)] for each in range(number)
    ]
    stage.chance.shuffle(chosen)
    return chosen


ROW = Row(
    "pauses",
    run,
    ci={"pauses": 10, "longest_ms": 2_000},
    chunk={"pauses": 10, "longest_ms": 15_000},
    num_chunks=20,
    anywhere=True,
)
