"""A region is told twice what it folds: what is shed is counted, DEBUG rows before others, and nothing grows."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
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
CYCLE_S = 0.5
GROWTH = 1.15  # of the most that was used before, which the machine's own noise stays below
WELL_ABOVE = 1.5
STILL = 0.1  # of the warnings may go where the machine stands still: three seconds fill a trainer's room with them
SETTLED_S = 180.0  # what is settled is kept for two minutes: only a run of some minutes shows whether Redis grows
MOST_AT_WORK_S, TURN = 0.45, 1.1
"""What the region's aggregator is let run in a cycle grows and shrinks by this factor until it folds its share."""


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with Server(directory / "redis", options=UNKEPT) as server, crew(directory, server) as hands:
        tiers = {tier: hands.on[hands.aggregate(tier)] for tier in TIERS}
        told = {name: amounts[name] for name in ("per_s", "seconds", "most_waiting")}
        reporter = hands.start("reporter", "publisher-reporter", region=REGION, **told)
        wait_until(lambda: bool(hands.client.exists(TOTALS)), "the flow has begun")
        used = watch(hands, {**tiers, "reporter": reporter}, chance, amounts)
        hands.finish(result)
        check(result, hands)
        for name, samples in used.items():
            check_flat(result, name, samples, amounts["seconds"])
    return result


def watch(hands: Crew, processes: dict[str, Child], chance: random.Random, amounts: Amounts) -> dict[str, list[int]]:
    """Bytes that each process and Redis use, while the region's aggregator runs for as long as makes up its share."""
    used: dict[str, list[int]] = {name: [] for name in (*processes, "redis")}
    began, share_per_s, at_work_s = time.monotonic(), amounts["per_s"] / amounts["times"], CYCLE_S / 10
    while time.monotonic() < began + amounts["seconds"] and processes["reporter"].alive:
        processes["regional"].pause()
        for name, child in processes.items():
            if child.alive:  # the reporter ends when all that it made is folded or shed
                used[name].append(resident_bytes(child.pid))
        memory: Any = hands.client.info("memory")
        used["redis"].append(int(memory["used_memory"]))
        is_behind = totals(hands).num_packets < share_per_s * (time.monotonic() - began)
        at_work_s = min(MOST_AT_WORK_S, at_work_s * TURN if is_behind else at_work_s / TURN)
        time.sleep((CYCLE_S - at_work_s) * chance.uniform(0.8, 1.2))
        processes["regional"].resume()
        time.sleep(at_work_s)
    return used


def totals(hands: Crew) -> pb.AggregatedTelemetry:
    stored: Any = hands.client.hget(TOTALS, "aggregate")
    return pb.AggregatedTelemetry.FromString(stored)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def check(result: Result, hands: Crew) -> None:
    """Packets = counted + shed, by what the reporter says and by what the tiers say."""
    [said] = [record for record in records(hands.history, "publisher-reporter") if record["what"] == "made"]
    total = totals(hands)
    result.count("packets", said["made"])
    for level in SHARES:
        result.count(f"shed_{level.removeprefix('TELEMETRY_').lower()}", said["by_level"].get(level, 0))
    result.expect(total.num_packets + said["shed"] == said["made"], f"{total.num_packets} counted of {said}")
    result.expect(total.num_shed <= said["shed"], f"the tiers tell of {total.num_shed} shed, the reporter of {said}")
    result.expect(total.num_gaps == total.num_late, f"{total.num_gaps} gaps, of which {total.num_late} were late")
    result.expect_soon(
        said["shed"] > said["made"] / 10, f"only {said['shed']} of {said['made']} were shed: no overload"
    )
    warnings = said["made"] * SHARES["TELEMETRY_WARNING"]
    lost, is_room = said["by_level"].get("TELEMETRY_WARNING", 0), said["made"] - said["shed"] > WELL_ABOVE * warnings
    result.expect(not said["unfair"], f"{said['unfair']} warnings were shed while DEBUG rows waited")
    result.expect_soon(not is_room or lost < warnings * STILL, f"{lost} of {warnings:.0f} warnings were shed")


def check_flat(result: Result, name: str, samples: Sequence[int], lasts_s: float) -> None:
    """The last third uses no more than the second did."""
    third = len(samples) // 3
    if not third:
        result.expect_soon(False, f"{name} was looked at {len(samples)} times: the machine stood still")
        return
    before, after = max(samples[third : 2 * third]), max(samples[2 * third :])
    result.sample(f"{name}_mb", after / 1e6)
    if name != "redis" or lasts_s > SETTLED_S:
        result.expect(after <= before * GROWTH, f"{name} grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB")


ROW = Row(
    "overload",
    run,
    ci={"seconds": 4, "per_s": 10_000, "times": 2, "most_waiting": 100},
    chunk={"seconds": 600, "per_s": 8_000, "times": 2, "most_waiting": 1_000},
    num_chunks=1,
)
