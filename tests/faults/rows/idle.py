"""A worker killed with messages in hand, on a stream that nothing more comes to: another one takes them over."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.faults.crew import RECLAIM_MS, Crew, crew
from tests.faults.processes import Child, wait_until
from tests.faults.pulse import Pulse
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve

SLACK_S = 1.0
FOR_EVER_S = 3600.0


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    del seed  # nothing is drawn: when a message comes is left to the machine
    result = Result()
    with serve(directory / "redis", UNKEPT) as server, Pulse(server) as pulse, crew(directory, server) as hands:
        hands.work("worker")
        for _ in range(amounts["deaths"]):
            die_in_hand(hands, pulse, result)
        result.expect_soon(hands.lease_losses() == 0, "a lease was lost by one that did not die")
        hands.finish(result)
    return result


def die_in_hand(hands: Crew, pulse: Pulse, result: Result) -> None:
    """The death of a consumer that will never end what it has begun."""
    died_ns, left = time.monotonic_ns(), set[str]()
    while not left:  # else the machine stood still before the kill, and all of it was taken from the living
        holder = hands.work("holder", work_s=FOR_EVER_S, count=4)
        hold_something(hands, holder)
        hands.kill(holder)
        died_ns = time.monotonic_ns()
        left = set(hands.held_by(holder))
    wait_until(lambda: left <= applied_ns(hands).keys(), "all of it is done")
    for entry_id in left:
        took_s = pulse.served_s(died_ns, applied_ns(hands)[entry_id])
        result.sample("reclaimed_s", took_s)
        result.expect_soon(took_s <= RECLAIM_MS / 1000 + SLACK_S, f"{entry_id} was left for {took_s:.2f} s")
    result.count("deaths")
    result.count("messages_left", len(left))


def hold_something(hands: Crew, holder: str) -> None:
    """Publish until one of the messages has gone to this consumer; it is not yet old enough to be taken from it."""
    deadline, number = time.monotonic() + 30.0, 0
    while not hands.held_by(holder):
        assert time.monotonic() < deadline, f"{holder} gets no message"
        number += 1
        name = f"publisher-{holder}-{number}"
        publisher = hands.publish(name, count=4, per_s=1_000_000.0)
        # Looked at while it publishes: where a process takes long to end, what was held is old enough by then.
        wait_until(partial(held_or_done, hands, holder, publisher), f"{name} is done")


def held_or_done(hands: Crew, holder: str, publisher: Child) -> bool:
    return bool(hands.held_by(holder)) or not publisher.alive


def applied_ns(hands: Crew) -> dict[str, int]:
    """When each effect was witnessed, by the command's entry."""
    return {record["entry_id"]: record["at_ns"] for record in hands.applied()}


ROW = Row("idle", run, ci={"deaths": 5}, chunk={"deaths": 25}, num_chunks=8, anywhere=True)
