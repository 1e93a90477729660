"""Workers told to stop under load: they end in time, and what they had read ahead runs elsewhere at once."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.faults.accounts import events
from tests.faults.crew import Crew, crew
from tests.faults.history import records
from tests.faults.processes import SOON_S, wait_until
from tests.faults.pulse import Pulse
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve

PLACES = ("worker-a", "worker-b", "worker-c", "worker-d")
PER_S = 800.0
COUNT = 16  # messages of a read
WORK_S = 0.65 * len(PLACES) / PER_S  # three of them can still bear it all
BURST = 512  # messages at once: reads are full, and the next batch is read ahead
GRACE_S = 5.0
AGAIN_S = 1.0
LEASE_MS = 30_000  # nothing is taken over but what was handed back


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    with serve(directory / "redis", UNKEPT) as server, Pulse(server) as pulse, crew(directory, server) as hands:
        workers = {place: start(hands, place) for place in PLACES}
        hands.publish("publisher", 10_000_000, PER_S, together=BURST)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun")
        stopped = []
        for _ in range(amounts["stops"]):
            time.sleep(chance.uniform(0.0, 0.4))
            place = chance.choice(PLACES)
            stopped.append(stop(hands, workers[place], pulse, result))
            workers[place] = start(hands, place)
        hands.stop_publishing()
        hands.finish(result)
        judge(hands, stopped, pulse, result)
    return result


def start(hands: Crew, place: str) -> str:
    return hands.work(place, work_s=WORK_S, count=COUNT, reclaim_after_ms=LEASE_MS)


def stop(hands: Crew, worker: str, pulse: Pulse, result: Result) -> str:
    """SIGTERM to one worker that has more in hand than one read; it ends in order, within the grace."""
    wait_until(lambda: len(hands.held_by(worker)) > 3 * COUNT, f"{worker} has read ahead")
    told_ns = time.monotonic_ns()
    hands.on.pop(worker).terminate(SOON_S)
    took_s = pulse.served_s(told_ns, time.monotonic_ns())
    result.count("stops")
    result.sample("exit_s", took_s)
    result.expect_soon(took_s <= GRACE_S, f"{worker} took {took_s:.1f} s to end")
    still = hands.held_by(worker)
    result.expect(not still, f"{worker} ended with {len(still)} entries in its name")
    return worker


def judge(hands: Crew, stopped: list[str], pulse: Pulse, result: Result) -> None:
    """What a worker handed back took effect elsewhere, within a second of that."""
    applied = {record["entry_id"]: record for record in hands.applied()}
    for worker in stopped:
        (record,) = records(hands.history, worker)
        told = sum(event["count"] for event in events(hands.log(worker), "entries.released"))
        left = record["entry_ids"]
        result.expect(told == len(left), f"{worker} held {len(left)} entries at its end and handed back {told}")
        result.count("released", len(left))
        for entry_id in left:
            effect = applied[entry_id]
            again_s = pulse.served_s(record["at_ns"], effect["at_ns"])
            result.sample("again_s", again_s)
            result.expect(effect["worker"] != worker, f"{entry_id} was carried out and handed back")
            result.expect_soon(again_s <= AGAIN_S, f"{entry_id}, handed back by {worker}, ran after {again_s:.2f} s")
    result.count("messages", len(applied))


ROW = Row("sigterm", run, ci={"stops": 10}, chunk={"stops": 25}, num_chunks=20, anywhere=True)
