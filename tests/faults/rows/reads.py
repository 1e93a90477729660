"""Reads that are cancelled, cut off or given up around arrivals: nothing that is due stays un-run for a second."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.faults.accounts import events
from tests.faults.crew import Crew, crew
from tests.faults.history import records
from tests.faults.processes import wait_until
from tests.faults.pulse import Pulse
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve

READER = "reader"
LEASE_MS = 60_000  # no reclaim helps: what a read has stranded the reader itself must find
PER_S = 100.0
LONGEST_S = 0.03  # between two cancellations
BLOCK_S = 0.2
MARGIN_S = 0.6  # a read is given up that much later
ANSWER_S = 0.8  # and any other command
UNRUN_S = 1.0


@dataclass(slots=True)
class Faults:
    """What is done to the reader's connections."""

    crew: Crew
    result: Result

    def cut_off(self) -> None:
        """Close the connections on which clients wait for entries of the group, of which there is one by then."""
        wait_until(self._has_cut_off, "a read is cut off")

    def _has_cut_off(self) -> bool:
        killed = [each for server, each in self.waiting() if server.client_kill_filter(_id=each)]
        self.result.count("reads_cut_off", len(killed))
        return bool(killed)

    def waiting(self) -> list[tuple[redis.Redis, str]]:
        """Connections that are blocked in a read, and where."""
        servers = [redis.Redis.from_url(url) for url in self.crew.server.urls]
        clients: list[tuple[redis.Redis, Any]] = [(server, each) for server in servers for each in server.client_list()]
        return [
            (at, each["id"]) for at, each in clients if each["cmd"].lower() == "xreadgroup" and "b" in each["flags"]
        ]

    def pause(self) -> None:
        """Serve nobody until every read under way is given up."""
        wait_until(lambda: bool(self.waiting()), "a read is under way")
        lasts_s = 2 * BLOCK_S + ANSWER_S + 0.4  # a BLOCK that has begun still ends; the read after it has no answer
        self.crew.server.pause_clients(lasts_s)
        self.result.count("server_pauses")


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    with serve(directory / "redis", UNKEPT) as server, Pulse(server) as pulse, crew(directory, server) as hands:
        told = {"cancels": amounts["cancels"], "longest_s": LONGEST_S, "seed": seed, "answer_s": ANSWER_S}
        hands.start(
            "reader",
            READER,
            reclaim_after_ms=LEASE_MS,
            count=8,
            block_ms=int(BLOCK_S * 1000),
            margin_s=MARGIN_S,
            **told,
        )
        hands.publish("publisher", 10_000_000, PER_S, together=2)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun")
        faults = Faults(hands, result)
        harm([faults.cut_off] * amounts["cut_offs"], chance)
        patience_s = 30.0 + amounts["cancels"] * LONGEST_S * 2
        wait_until(lambda: num_cancelled(hands) >= amounts["cancels"], "all are cancelled", patience_s)
        harm([faults.pause] * amounts["pauses"], chance)  # no read outlasts a task that begins anew all the time
        hands.stop_publishing()
        hands.finish(result)
        judge(hands, pulse, result)
    return result


def harm(faults: Sequence[Callable[[], None]], chance: random.Random) -> None:
    for fault in faults:
        time.sleep(chance.uniform(0.05, 0.25))
        fault()


def num_cancelled(hands: Crew) -> int:
    return sum(record["what"] == "cancelled" for record in records(hands.history, READER))


def judge(hands: Crew, pulse: Pulse, result: Result) -> None:
    """No message lay there for a second in which the server would have given it out."""
    acked = {r["entry_id"]: r["at_ns"] for r in records(hands.history, "publisher") if r["what"] == "acknowledged"}
    for record in hands.applied():
        if record["entry_id"] in acked:  # else its copy was
            unrun_s = pulse.served_s(acked[record["entry_id"]], record["at_ns"])
            result.sample("unrun_s", unrun_s)
            result.expect_soon(unrun_s <= UNRUN_S, f"{record['entry_id']} lay un-run for {unrun_s:.2f} s")
    result.count("cancelled", num_cancelled(hands))
    result.count("messages", len(hands.applied()))
    losses = events(hands.log(READER), "bus.lost")
    given_up = sum(each["who"].startswith("workers of") and "no answer" in each["why"] for each in losses)
    result.count("reads_given_up", given_up)  # of new entries, or of what is pending
    result.expect(given_up > 0, "no read was given up")


ROW = Row(
    "reads",
    run,
    # A pause is a read given up most of the time: without any the others come to 300, and to 10,000.
    ci={"cancels": 273, "cut_offs": 27, "pauses": 3},
    chunk={"cancels": 455, "cut_offs": 45, "pauses": 5},
    num_chunks=20,
    anywhere=True,
)
