"""From proposal to commit seen by all, the arms taking turns: alone, beside ranks that train, and with 64 members."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import redis

from bus_rows.session import Amounts, Session
from esper.bench.rounds.part import Part
from esper.bench.rounds.town import Slice, Town, ours
from report import Report, by_round, quantile

WARM = 50


def measure(session: Session) -> None:
    url, directory, amounts, report = session.url, session.directory, session.amounts, session.report
    with ExitStack() as stack:
        towns = {
            name: stack.enter_context(ours(url, directory, name.replace(" ", "-"), 8))
            for name in ("ours", "ours again")
        }
        towns["bare"] = stack.enter_context(bare(url, directory, 8))
        alone = take_slices(towns, amounts)
        report_rounds(report, "8 idle workers", alone, {"p50": 4.0, "p99": 10.0, "rate": 250.0})
        for at in range(2):
            stack.enter_context(Part("barrier_arms.training", f"training-{at}", directory)).answer()
        report_rounds(report, "8 workers beside 2 that train", take_slices(towns, amounts), {"p99": 50.0})
    with ours(url, directory, "many", 64, per_process=32) as many:
        report_rounds(report, "64 simulated members", take_slices({"ours": many}, amounts), {"p99": 50.0, "rate": 20.0})
    report.add("PING round trip", "redis", "p50", quantile(pings(url), 0.5), "ms", 2_000)


def take_slices(towns: Mapping[str, Town], amounts: Amounts) -> dict[str, list[Slice]]:
    """Slices of each arm, in an order drawn anew for each turn."""
    draw, order = random.Random(0), list(towns)
    for town in towns.values():
        town.rounds(WARM)
    slices: dict[str, list[Slice]] = {name: [] for name in order}
    for _ in range(amounts.rounds):
        draw.shuffle(order)
        for name in order:
            slices[name].append(towns[name].rounds(amounts.num))
    return slices


def report_rounds(report: Report, row: str, slices: Mapping[str, list[Slice]], targets: Mapping[str, float]) -> None:
    """Quantiles and rates of each arm, as ratios to the bare one or to its twin."""
    against = slices.get("bare", ())
    for name, parts in slices.items():
        values = [each for part in parts for each in part.latencies_ms]
        for stat, level in (("p50", 0.5), ("p99", 0.99)):
            each, base = quantiles(parts, level), quantiles(against, level)
            vs = by_round(each, base, "bare") if base and name != "bare" else None
            report.add(row, name, stat, quantile(values, level), "ms", len(values), vs)
        rates = sorted(part.per_s for part in parts)
        report.add(row, name, "rate", rates[len(rates) // 2], "rounds/s", len(values))
    for stat, value in targets.items():
        report.aim(row, "ours", stat, value, higher=stat == "rate")


def quantiles(parts: Sequence[Slice], level: float) -> list[float]:
    """Of each slice by itself."""
    return [quantile(part.latencies_ms, level) for part in parts]


def bare(url: str, directory: Path, num: int) -> Town:
    """Plain redis-py on two streams."""
    arms = "barrier_arms.bare"
    with ExitStack() as stack:
        leader = stack.enter_context(Part(arms, "bare-leader", directory, url=url, world_size=num))
        members = [stack.enter_context(Part(arms, f"bare-{at}", directory, url=url)) for at in range(num)]
        return Town(leader, members, stack)


def pings(url: str, num: int = 2_000) -> list[float]:
    """Milliseconds of a round trip that does nothing: what no hop can be faster than."""
    with redis.Redis.from_url(url) as client:
        samples = []
        for _ in range(num):
            begun = time.perf_counter_ns()
            client.ping()
            samples.append((time.perf_counter_ns() - begun) / 1e6)
    return samples
