"""Commands whose handler kills its process each time, or fails: set aside when they have to be, and nothing else."""

from __future__ import annotations

import time
from collections import defaultdict

from tests.faults.forge import Forge
from tests.faults.history import records
from tests.faults.processes import wait_until
from tests.faults.roles.poisoned import FAILS, KILLS
from tests.faults.row import Result
from tests.faults.station import Station

DELIVERIES = [1, 2, 3, 4, 5]
PAIR_EVERY = 2
NEIGHBOURS = 8  # on either side
RECLAIM_MS = 100
DONE_S = 60.0


def poison(station: Station, forge: Forge, num_poisons: int, result: Result) -> None:
    """One poison after the other, neighbours around each; whoever dies of it is followed by another one."""
    num_deaths, worker = 0, station.start("poisoned", "poisoned-0", reclaim_after_ms=RECLAIM_MS)
    for number in range(num_poisons):
        add(station, forge, number)
        deadline = time.monotonic() + DONE_S
        while not station.is_through():
            assert time.monotonic() < deadline, f"poison {number} is still not set aside: {worker.last_words()}"
            wait_until(lambda worker=worker: station.is_through() or not worker.alive, "it is done, or dies")  # type: ignore[misc]
            if not worker.alive:
                num_deaths += 1
                worker = station.start("poisoned", f"poisoned-{num_deaths}", reclaim_after_ms=RECLAIM_MS)
    station.drain()
    worker.terminate(DONE_S)
    result.count("poisons", num_poisons)
    result.count("poison_deaths", num_deaths)
    judge(station, num_poisons, result)


def add(station: Station, forge: Forge, number: int) -> None:
    """In one go, so that they share a batch: neighbours around one that fails and one that kills; at last around two.

    The second of these two is delivered beside the first one, and those deliveries fail too.
    """
    around = [forge.genuine() for _ in range(3 * NEIGHBOURS)]
    entries = [((b"m", sealed), command_id) for command_id, sealed in around]
    for place, command_id in ((2, f"{FAILS}{number}"), (1, f"{KILLS}{number}/second"), (1, f"{KILLS}{number}")):
        if number % PAIR_EVERY or not command_id.endswith("second"):
            entries.insert(place * NEIGHBOURS, ((b"m", named(forge, command_id)), ""))
    station.add(entries)


def named(forge: Forge, command_id: str) -> bytes:
    command = forge.command()
    command.command_id = command_id
    return forge.sealed(forge.draft(command.SerializeToString()))


def judge(station: Station, num_poisons: int, result: Result) -> None:
    """Who dies of a poison is told by the histories; what became of it, by its one letter with the whole message."""
    tries = defaultdict[str, list[int]](list)
    entry_ids = {}
    for record in records(station.history, "poisoned"):
        tries[record["id"]].append(record["attempts"])
        entry_ids[record["id"]] = record["entry_id"]
    letters = station.letters()
    for name, met in tries.items():
        met.sort()
        letter = letters.pop(entry_ids[name], {})
        told = (letter.get(b"reason"), int(letter.get(b"attempts", 0)), b"m" in letter)
        wanted = wanted_of(name, met)
        result.expect(met == wanted, f"{name} was handled at deliveries {met}; expected {wanted}")
        result.expect(told == (b"poison", met[-1], True), f"the letter of {name} says {told}")
    alone = [f"{kind}{number}" for kind in (KILLS, FAILS) for number in range(num_poisons)]
    result.expect(tries.keys() >= set(alone), f"handled: {sorted(tries)}; expected {alone}")
    result.expect(not letters, f"{len(letters)} dead letters more: {list(letters.values())[:2]}")


def wanted_of(name: str, met: list[int]) -> list[int]:
    """At which deliveries it had to be handled."""
    if name.startswith(FAILS):
        return met[:1]  # whichever is the first that it is reached at
    return DELIVERIES[-len(met) :] if name.endswith("second") else DELIVERIES
