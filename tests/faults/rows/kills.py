"""Workers, aggregators and Redis killed at random moments under load: nothing is lost, nothing happens twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.crew import COMMANDS, REGION, TIERS, Crew, crew
from tests.faults.processes import sleep_until, wait_until
from tests.faults.roles.publisher import PACKETS
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import single
from tests.faults.serving import Serve

PLACES = ("worker-a", "worker-b", "worker-c")
FLUSHED = {"appendfsync": "always"}  # with everysec a busy disk lets Redis answer before it has written
AWAY = ("LostError", "NoReplicasError")
BUSY = 0.6  # of their time workers spend on what they hold: most kills then hit something in hand


@dataclass(slots=True)
class Targets:
    """Who stands where, and what is done to them."""

    crew: Crew
    result: Result
    chance: random.Random
    work_s: float
    workers: dict[str, str]
    tiers: dict[str, str]

    def replace_ended(self) -> None:
        """A process that is starting when Redis goes away says so and ends, to be started anew by who supervises it."""
        for place, name in [*self.workers.items(), *self.tiers.items()]:
            child = self.crew.on[name]
            if not child.alive:
                said = child.last_words()
                self.result.expect(any(each in said for each in AWAY), f"{name} ended by itself: {said}")
                self.result.count("ended_at_start")
                del self.crew.on[name]
                self.stand(place)

    def stand(self, place: str) -> None:
        """The next incarnation of whoever stands here."""
        if place in self.tiers:
            self.tiers[place] = self.crew.aggregate(place)
        else:
            self.workers[place] = self.crew.work(place, work_s=self.work_s)

    def kill_worker(self) -> None:
        place = self.chance.choice(PLACES)
        name = self.workers[place]
        self.crew.kill(name)
        self.result.count("worker_kills")
        self.result.count("worker_kills_with_work_in_hand", int(bool(self.crew.held_by(name))))
        self.stand(place)

    def kill_aggregator(self) -> None:
        tier = self.chance.choice(sorted(TIERS))
        self.crew.kill(self.tiers[tier])
        self.result.count("aggregator_kills")
        self.stand(tier)

    def kill_redis(self) -> None:
        began = time.monotonic()
        self.crew.server.restart()
        served = time.monotonic()
        self.result.count("redis_kills")
        at = len(self.crew.applied())
        wait_until(lambda: self._has_more_than(at), "work goes on")
        resumed = time.monotonic()
        self.result.sample("resumed_s", resumed - began)
        self.result.sample("resumed_once_served_s", resumed - served)
        self.crew.publish_on()

    def _has_more_than(self, num_applied: int) -> bool:
        """Whoever was starting is started again: it may be all of them."""
        self.replace_ended()
        return len(self.crew.applied()) > num_applied


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    per_s = amounts["per_s"]
    with serve(directory / "redis", FLUSHED) as server, crew(directory, server) as hands:
        work_s = BUSY * len(PLACES) / per_s
        workers = {place: hands.work(place, work_s=work_s) for place in PLACES}
        tiers = {tier: hands.aggregate(tier) for tier in TIERS}
        targets = Targets(hands, result, chance, work_s, workers, tiers)
        hands.publish("publisher", amounts["messages"], per_s)
        hands.publish("publisher-telemetry", amounts["messages"] // PACKETS, per_s / PACKETS, region=REGION, together=2)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun")
        strike(targets, amounts, amounts["messages"] / per_s)
        result.count("lease_losses", hands.lease_losses())
        hands.finish(result)
        result.count("messages", hands.client.xlen(COMMANDS))
        result.count("packets", amounts["messages"] // PACKETS * PACKETS)
    return result


def strike(targets: Targets, amounts: Amounts, lasts_s: float) -> None:
    """All kills in random order, spread over the flow; where the machine is too slow for that, one after the other."""
    kinds: dict[Callable[[], None], int] = {
        targets.kill_worker: amounts["worker_kills"],
        targets.kill_aggregator: amounts["aggregator_kills"],
        targets.kill_redis: amounts["redis_kills"],
    }
    faults = [kind for kind, times in kinds.items() for _ in range(times)]
    targets.chance.shuffle(faults)
    moments = sorted(targets.chance.uniform(0.02, 0.97) * lasts_s for _ in faults)
    began = time.monotonic()
    for at_s, fault in zip(moments, faults, strict=True):
        sleep_until(began + at_s)
        targets.replace_ended()
        fault()
    targets.replace_ended()


ROW = Row(
    "kills",
    run,
    ci={"messages": 20_000, "per_s": 1_000, "worker_kills": 40, "aggregator_kills": 20, "redis_kills": 6},
    chunk={"messages": 50_000, "per_s": 1_500, "worker_kills": 15, "aggregator_kills": 5, "redis_kills": 2},
    num_chunks=20,
    anywhere=True,
)
