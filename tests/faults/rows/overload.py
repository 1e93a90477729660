"""A region is told twice what it was measured to fold: what is shed is counted, DEBUG rows first, and nothing grows."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esper.bus import names
from esper.bus.group.backlog import MOST_WAITING
from esper.leyline import contracts as pb
from esper.runtime.aggregator.loop import RECLAIM_AFTER_MS
from tests.faults.crew import REGION, TELEMETRY, TIERS, Crew, crew
from tests.faults.history import records
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, Server
from tests.faults.share import limited

TOTALS = names.key(RUN, "totals")
REPORTER = "publisher-reporter"
MOSTLY = 0.7  # of what the runtimes let wait, which they fill up every quarter of a second
TOLD, REACHED, KEPT = 2.0, 1.9, 0.5  # times the capacity: ordered, told at least, folded at least meanwhile
FEWEST = 3  # changes of the total, which grows by thousands
LOOK_EVERY_S = 0.02
GROWTH = 1.15  # of the most that was used before, which the machine's own noise stays below
WELL_ABOVE = 1.5
STILL = 0.1  # of the warnings may go where the machine stands still: three seconds fill a trainer's room with them
SETTLED_S = 180.0  # what is settled is kept for two minutes: only a run of some minutes shows whether Redis grows


@dataclass
class Watch:
    """What is looked at while time passes: what the region has folded, and bytes that processes and Redis use."""

    hands: Crew
    processes: Mapping[str, Child]
    used: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    folded: list[int] = field(default_factory=list)

    def folded_per_s(self, seconds: float) -> float:
        """From one settlement to another, so long apart or longer."""
        began_s, at_s, folded = time.monotonic(), list[float](), list[int]()
        while time.monotonic() < began_s + seconds or len(at_s) <= FEWEST:
            num = totals(self.hands).num_packets
            if num not in folded[-1:]:
                at_s.append(time.monotonic())
                folded.append(num)
            self._look()
            self.folded.append(num)
            time.sleep(LOOK_EVERY_S)
        return (folded[-1] - folded[1]) / (at_s[-1] - at_s[1])  # the first is of any time before the first look

    def _look(self) -> None:
        for name, child in self.processes.items():
            assert child.alive, f"{name} ended: {child.last_words()}"
            self.used[name].append(resident_bytes(child.pid))
        memory: Any = self.hands.client.info("memory")
        self.used["redis"].append(int(memory["used_memory"]))


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, order = Result(), directory / "flood.json"
    with Server(directory / "redis", options=UNKEPT) as server, crew(directory, server) as hands:
        processes = {tier: hands.on[hands.aggregate(tier, RECLAIM_AFTER_MS)] for tier in TIERS}
        for number in range(amounts["reporters"]):
            told = {"seed": seed, "flood": str(order), "room": amounts["room"], "most_waiting": amounts["most_waiting"]}
            processes[f"reporter_{number}"] = hands.start("reporter", f"{REPORTER}-{number}", region=REGION, **told)
        wait_until(lambda: bool(hands.client.exists(TOTALS)), "the flow has begun")
        with limited(processes["regional"].pid, amounts["percent"], directory / "logs") as means:
            enough = MOSTLY * amounts["most_waiting"]
            wait_until(lambda: num_waiting(hands) >= enough, "more waits than the region folds", 2 * SOON_S)
            capacity_per_s = Watch(hands, processes).folded_per_s(amounts["measured_s"])
            ordered(order, per_s=TOLD * capacity_per_s / amounts["reporters"], seconds=amounts["seconds"])
            watch = Watch(hands, processes)
            overloaded_per_s = watch.folded_per_s(amounts["seconds"])
        hands.finish(result)
        result.count(f"limited_by_{means}")
        check(result, hands, capacity_per_s, overloaded_per_s)
        for name, samples in watch.used.items():
            check_flat(result, name, samples, 1.0 if name != "redis" else growth(watch.folded, amounts["seconds"]))
    return result


def num_waiting(hands: Crew) -> int:
    """Entries not settled, of which the region has some in hand."""
    [group] = hands.client.xinfo_groups(TELEMETRY)
    unread: Any = hands.client.xrange(TELEMETRY, f"({group['last-delivered-id'].decode()}", count=MOST_WAITING)
    return int(group["pending"]) + len(unread)


def ordered(path: Path, **flood: float) -> None:
    """Whole, or not there yet."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(flood))
    aside.rename(path)


def totals(hands: Crew) -> pb.AggregatedTelemetry:
    stored: Any = hands.client.hget(TOTALS, "aggregate")
    return pb.AggregatedTelemetry.FromString(stored)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def check(result: Result, hands: Crew, capacity_per_s: float, overloaded_per_s: float) -> None:
    """What the reporters say of themselves, beside what the tiers say and what was measured."""
    told = [record for record in records(hands.history, f"{REPORTER}-*") if record["what"] == "made"]
    said = sum((Counter(record["rows"]) for record in told), Counter[str]())
    for what in ("made", "shed", "shed_debug", "shed_warnings"):
        result.count(what, said[what])
    check_rate(result, said["flooded"] / max(record["flooded_s"] for record in told), capacity_per_s, overloaded_per_s)
    check_count(result, totals(hands), said)
    check_levels(result, said)


def check_rate(result: Result, told_per_s: float, capacity_per_s: float, overloaded_per_s: float) -> None:
    """It was told so much more than it can fold, and folded no less for that."""
    result.sample("capacity_per_s", capacity_per_s)
    result.sample("told_per_s", told_per_s)
    result.sample("overloaded_per_s", overloaded_per_s)
    beside = f"per s beside a capacity of {capacity_per_s:.0f}"
    result.expect_soon(told_per_s >= REACHED * capacity_per_s, f"{told_per_s:.0f} were told {beside}")
    result.expect_soon(overloaded_per_s >= KEPT * capacity_per_s, f"{overloaded_per_s:.0f} were folded {beside}")


def check_count(result: Result, total: pb.AggregatedTelemetry, said: Mapping[str, int]) -> None:
    """Packets = counted + shed."""
    result.expect(total.num_packets + said["shed"] == said["made"], f"{total.num_packets} counted of {said}")
    result.expect(total.num_shed <= said["shed"], f"the tiers tell of {total.num_shed} shed, the reporters of {said}")
    result.expect(total.num_gaps == total.num_late, f"{total.num_gaps} gaps, of which {total.num_late} were late")
    result.expect_soon(said["shed"] > said["flooded"] / 10, f"few were shed of {said}: no overload")


def check_levels(result: Result, said: Mapping[str, int]) -> None:
    """DEBUG rows before others, of each level the oldest first."""
    lost, is_room = said["shed_warnings"], said["made"] - said["shed"] > WELL_ABOVE * said["warnings"]
    result.expect(said["shed"] == lost + said["shed_debug"], f"{said} are not all of their levels")
    result.expect(not said["unfair"], f"{said['unfair']} warnings were shed while DEBUG rows waited")
    result.expect(not said["out_of_turn"], f"{said['out_of_turn']} rows outlived a younger one of their level")
    result.expect_soon(
        not is_room or lost < said["warnings"] * STILL, f"{lost} of {said['warnings']} warnings were shed"
    )


def growth(folded: Sequence[int], lasts_s: float) -> float:
    """Of what Redis keeps, which is all that was settled in two minutes: more where more was folded in the last third
    than in the second, as on a machine that is less busy by then. Before it has kept so long it may grow to any size.
    """
    third = len(folded) // 3
    if lasts_s <= SETTLED_S or not third:
        return math.inf
    return max(1.0, (folded[-1] - folded[2 * third]) / (folded[2 * third] - folded[third]))


def check_flat(result: Result, name: str, samples: Sequence[int], allowed: float) -> None:
    """The last third uses no more than the second did, or so many times as much."""
    third = len(samples) // 3
    if not third:
        result.expect_soon(False, f"{name} was looked at {len(samples)} times: the machine stood still")
        return
    before, after = max(samples[third : 2 * third]), max(samples[2 * third :])
    result.sample(f"{name}_mb", after / 1e6)
    told = f"{name} grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB, at {allowed:.2f} times the work"
    result.expect(after <= before * allowed * GROWTH, told)


ROW = Row(
    "overload",
    run,
    ci={"seconds": 3, "measured_s": 1, "percent": 3, "reporters": 1, "room": 3_072, "most_waiting": 500},
    chunk={"seconds": 600, "measured_s": 20, "percent": 3, "reporters": 4, "room": 8_192, "most_waiting": MOST_WAITING},
    num_chunks=1,
)
