"""Aggregators of both tiers killed, paused, joined and sent away while 64 sources report: each packet counts once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esper.bus import names
from esper.leyline import contracts as pb
from tests.faults.crew import REGION, TIERS, Crew, crew
from tests.faults.measured import NAMES, differences, values_of
from tests.faults.processes import SOON_S, sleep_until, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve

MOST, LEAST = 4, 1  # aggregators of a tier at work at once
LEASE_MS = 500  # less than a busy machine takes at times for what is read ahead: others take it over then
LONGEST_S = 1.5 * LEASE_MS / 1000
TOTALS = names.key(RUN, "totals")


@dataclass(slots=True)
class Targets:
    """Who is at work in each tier, and what is done to them."""

    crew: Crew
    result: Result
    chance: random.Random
    at_work: dict[str, list[str]]

    def kill(self) -> None:
        """One of either tier, followed by another."""
        tier, name = self._any()
        self.crew.kill(name)
        self._left(tier, name)
        self.result.count("kills")
        self.join(tier)

    def pause(self) -> None:
        """Some of them past their lease: what was in hand is folded by others, and refused when it wakes."""
        _, name = self._any()
        self.crew.on[name].pause()
        time.sleep(self.chance.uniform(0.1, LONGEST_S))
        self.crew.on[name].resume()
        self.result.count("pauses")

    def rebalance(self) -> None:
        """One joins, or one leaves in order."""
        tier = self.chance.choice(sorted(TIERS))
        number = len(self.at_work[tier])
        if number == LEAST or (number < MOST and self.chance.random() < 0.5):
            self.join(tier)
            self.result.count("joined")
            return
        name = self.chance.choice(self.at_work[tier])
        self.crew.on.pop(name).terminate(SOON_S)
        self._left(tier, name)
        self.result.count("left")

    def join(self, tier: str) -> None:
        self.at_work[tier].append(self.crew.aggregate(tier, LEASE_MS))

    def _left(self, tier: str, name: str) -> None:
        self.at_work[tier].remove(name)

    def _any(self) -> tuple[str, str]:
        tier = self.chance.choice(sorted(TIERS))
        return tier, self.chance.choice(self.at_work[tier])


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    count = amounts["packets"] // amounts["sources"]
    with serve(directory / "redis", UNKEPT) as server, crew(directory, server) as hands:
        targets = Targets(
            hands, result, chance, {tier: [hands.aggregate(tier, LEASE_MS) for _ in range(2)] for tier in TIERS}
        )
        told = {"seed": seed, "sources": amounts["sources"], "count": count, "per_s": amounts["per_s"]}
        hands.start("metrics", "publisher-telemetry", region=REGION, **told)
        wait_until(lambda: bool(hands.client.exists(TOTALS)), "the flow has begun")
        strike(targets, amounts["faults"], count * amounts["sources"] / amounts["per_s"])
        result.count("lease_losses", hands.lease_losses())
        hands.finish(result)
        check(result, hands, seed, amounts["sources"], count)
    return result


def strike(targets: Targets, number: int, lasts_s: float) -> None:
    """Half of the faults are kills; all of them spread over the flow."""
    kinds: list[Callable[[], None]] = [targets.kill, targets.pause, targets.kill, targets.rebalance]
    faults = [kinds[each % len(kinds)] for each in range(number)]
    targets.chance.shuffle(faults)
    began = time.monotonic()
    for at_s, fault in zip(sorted(targets.chance.uniform(0.0, 0.9) * lasts_s for _ in faults), faults, strict=True):
        sleep_until(began + at_s)
        fault()
        targets.result.count("faults")


def check(result: Result, hands: Crew, seed: int, num_sources: int, count: int) -> None:
    """The running total against a reduction of everything that was sent."""
    stored: Any = hands.client.hget(TOTALS, "aggregate")
    aggregate = pb.AggregatedTelemetry.FromString(stored)
    sent = np.concatenate([values_of(seed, source, count) for source in range(num_sources)])
    result.count("packets", len(sent))
    result.count("duplicates", aggregate.num_duplicates)
    result.count("out_of_order", aggregate.num_out_of_order)
    result.expect(aggregate.num_packets == len(sent), f"{aggregate.num_packets} packets counted of {len(sent)} sent")
    missing = aggregate.num_gaps - aggregate.num_late
    result.expect(missing == 0, f"{missing} packets are told as missing, and none is")
    for name, values in zip(NAMES, sent.T, strict=True):
        for sentence in differences(aggregate.metrics[name], values):
            result.expect(False, f"{name}: {sentence}")


ROW = Row(
    "tiers",
    run,
    ci={"packets": 200_000, "sources": 64, "per_s": 12_500, "faults": 20},
    chunk={"packets": 400_000, "sources": 64, "per_s": 20_000, "faults": 20},
    num_chunks=25,
    anywhere=True,
)
