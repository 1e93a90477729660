"""Workers told to stop under load: they end in time, and what they had read ahead runs elsewhere at once."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.accounts import events
from tests.faults.crew import GRACE_S, Crew, crew
from tests.faults.processes import wait_until
from tests.faults.pulse import Pulse
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, Server

PLACES = ("worker-a", "worker-b", "worker-c", "worker-d")
PER_S = 800.0
WORK_S = 0.6 * len(PLACES) / PER_S  # three of them can still bear it all
BURST = 64  # messages at once: reads are full, and the next batch is read ahead
AGAIN_S = 1.0
LEASE_MS = 30_000  # nothing is taken over but what was handed back


@dataclass(frozen=True, slots=True)
class Stop:
    """One worker's end, and the entries that it has left to others."""

    worker: str
    ended_ns: int
    left: frozenset[str]


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with (
        Server(directory / "redis", options=UNKEPT) as server,
        Pulse(server) as pulse,
        crew(directory, server) as hands,
    ):
        workers = {place: start(hands, place) for place in PLACES}
        hands.publish("publisher", 10_000_000, PER_S, together=BURST)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun", 30.0)
        stops = []
        for _ in range(amounts["stops"]):
            due_s = time.monotonic() + chance.uniform(0.0, 0.4)
            wait_until(partial(is_past, due_s), "the next stop is due")
            place = chance.choice(PLACES)
            stops.append(stop(hands, workers[place], result))
            workers[place] = start(hands, place)
        hands.stop_publishing()
        hands.finish(result)
        judge(hands, stops, pulse, result)
    return result


def start(hands: Crew, place: str) -> str:
    return hands.work(place, work_s=WORK_S, count=16, reclaim_after_ms=LEASE_MS)


def stop(hands: Crew, worker: str, result: Result) -> Stop:
    """SIGTERM to one worker; it ends in order, within the grace."""
    held = hands.held_by(worker)
    took_s = hands.on.pop(worker).terminate(GRACE_S)
    ended_ns = time.monotonic_ns()
    result.count("stops")
    result.sample("exit_s", took_s)
    still = hands.held_by(worker)
    result.expect(not still, f"{worker} ended with {len(still)} entries in its name")
    return Stop(worker, ended_ns, frozenset(held))


def judge(hands: Crew, stops: list[Stop], pulse: Pulse, result: Result) -> None:
    """What a worker held at SIGTERM and did not settle itself took effect elsewhere within a second of its end."""
    applied = {record["entry_id"]: record for record in hands.applied()}
    for each in stops:
        released = sum(event["count"] for event in events(hands.log(each.worker), "entries.released"))
        result.count("released", released)
        for entry_id in each.left:
            effect = applied[entry_id]
            if effect["worker"] != each.worker:
                took_s = pulse.served_s(each.ended_ns, effect["at_ns"])
                result.sample("again_s", took_s)
                result.expect(took_s <= AGAIN_S, f"{entry_id}, handed back by {each.worker}, ran after {took_s:.2f} s")
    result.expect(result.counts["released"] > 0, "no worker had anything to hand back")
    result.expect(bool(result.samples.get("again_s")), "nothing that was handed back was met again")
    result.count("messages", len(applied))


def is_past(at_s: float) -> bool:
    return time.monotonic() >= at_s


ROW = Row("sigterm", run, ci={"stops": 10}, chunk={"stops": 25}, num_chunks=20)
