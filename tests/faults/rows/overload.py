"""A region is told much more than it can fold: what is shed is counted, DEBUG first, and nothing grows."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from esper.bus import names
from esper.leyline import contracts as pb
from tests.faults.crew import REGION, TIERS, Crew, crew
from tests.faults.history import records
from tests.faults.processes import Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, Server

SHARES = {"TELEMETRY_DEBUG": 0.75, "TELEMETRY_WARNING": 0.25}  # of the rows that the reporter makes
TOTALS = names.key(RUN, "totals")
CYCLE_S, SAMPLE_S = 0.5, 0.25
GROWTH = 1.15  # of the most that was used before, which the machine's own noise stays below
SETTLED_S = 180.0  # what is settled is kept for two minutes: only a run of some minutes shows whether Redis grows
AT_WORK = 0.05
"""Of its time the region's aggregator is let run: what it folds then is less than half of what it is told."""


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with Server(directory / "redis", options=UNKEPT) as server, crew(directory, server) as hands:
        tiers = {tier: hands.on[hands.aggregate(tier)] for tier in TIERS}
        told = {"per_s": amounts["per_s"], "seconds": amounts["seconds"], "most_waiting": amounts["most_waiting"]}
        reporter = hands.start("reporter", "publisher-reporter", region=REGION, **told)
        wait_until(lambda: bool(hands.client.exists(TOTALS)), "the flow has begun", 30.0)
        used = watch(hands, {**tiers, "reporter": reporter}, chance, amounts["seconds"])
        hands.finish(result)
        check(result, hands)
        for name, samples in used.items():
            check_flat(result, name, samples, amounts["seconds"])
    return result


def watch(hands: Crew, processes: dict[str, Child], chance: random.Random, lasts_s: float) -> dict[str, list[int]]:
    """Bytes that each process and Redis use, while the region's aggregator is stopped for most of the time."""
    used: dict[str, list[int]] = {name: [] for name in (*processes, "redis")}
    began = time.monotonic()
    while not is_past(began + lasts_s) and processes["reporter"].alive:
        processes["regional"].pause()
        sit(CYCLE_S * (1 - AT_WORK) * chance.uniform(0.8, 1.2))
        processes["regional"].resume()
        sit(CYCLE_S * AT_WORK)
        for name, child in processes.items():
            if child.alive:  # the reporter ends when all that it made is folded or shed
                used[name].append(resident_bytes(child.pid))
        memory: Any = hands.client.info("memory")
        used["redis"].append(int(memory["used_memory"]))
    return used


def sit(seconds: float) -> None:
    wait_until(partial(is_past, time.monotonic() + seconds), "some time has passed")


def is_past(at_s: float) -> bool:
    return time.monotonic() >= at_s


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def check(result: Result, hands: Crew) -> None:
    """Packets = counted + shed, by what the reporter says and by what the tiers say."""
    [said] = [record for record in records(hands.history, "publisher-reporter") if record["what"] == "made"]
    stored: Any = hands.client.hget(TOTALS, "aggregate")
    total = pb.AggregatedTelemetry.FromString(stored)
    result.count("packets", said["made"])
    result.count("shed", said["shed"])
    result.expect(total.num_packets + said["shed"] == said["made"], f"{total.num_packets} counted of {said}")
    result.expect(total.num_shed <= said["shed"], f"the tiers tell of {total.num_shed} shed, the reporter of {said}")
    result.expect(total.num_gaps == total.num_late, f"{total.num_gaps} gaps, of which {total.num_late} were late")
    result.expect(said["shed"] > said["made"] / 10, f"only {said['shed']} of {said['made']} were shed: no overload")
    made_of = {level: said["made"] * share for level, share in SHARES.items()}
    shed_of = {level: said["by_level"].get(level, 0) / made for level, made in made_of.items()}
    warnings, debug = shed_of["TELEMETRY_WARNING"], shed_of["TELEMETRY_DEBUG"]
    result.expect(warnings <= debug / 2, f"of warnings {warnings:.0%} were shed, of DEBUG rows {debug:.0%}")


def check_flat(result: Result, name: str, samples: Sequence[int], lasts_s: float) -> None:
    """The last third uses no more than the second did."""
    third = len(samples) // 3
    before, after = max(samples[third : 2 * third]), max(samples[2 * third :])
    result.sample(f"{name}_mb", after / 1e6)
    if name != "redis" or lasts_s > SETTLED_S:
        result.expect(after <= before * GROWTH, f"{name} grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB")


ROW = Row(
    "overload",
    run,
    ci={"seconds": 4, "per_s": 14_000, "most_waiting": 100},
    chunk={"seconds": 600, "per_s": 8_000, "most_waiting": 2_000},
    num_chunks=1,
)
