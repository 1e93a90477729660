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

MAX_DELIVERIES = 5
NEIGHBOURS = 8  # on either side
RECLAIM_MS = 200
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
    """Neighbours, a poison, neighbours, one whose handler fails, neighbours: in one go, so that they share a batch."""
    around = [forge.genuine() for _ in range(3 * NEIGHBOURS)]
    entries = [((b"m", sealed), command_id) for command_id, sealed in around]
    entries.insert(2 * NEIGHBOURS, ((b"m", named(forge, f"{FAILS}{number}")), ""))
    entries.insert(NEIGHBOURS, ((b"m", named(forge, f"{KILLS}{number}")), ""))
    station.add(entries)


def named(forge: Forge, command_id: str) -> bytes:
    command = forge.command()
    command.command_id = command_id
    return forge.sealed(forge.draft(command.SerializeToString()))


def judge(station: Station, num_poisons: int, result: Result) -> None:
    """Five deaths each, one failure each, a letter each with the whole message; histories tell of the rest."""
    tries = defaultdict[str, list[int]](list)
    entry_ids = {}
    for record in records(station.history, "poisoned"):
        tries[record["id"]].append(record["attempts"])
        entry_ids[record["id"]] = record["entry_id"]
    letters = station.letters()
    for number in range(num_poisons):
        for name, wanted in ((f"{KILLS}{number}", MAX_DELIVERIES), (f"{FAILS}{number}", 1)):
            letter = letters.pop(entry_ids[name], {})
            met = (letter.get(b"reason"), letter.get(b"attempts"), b"m" in letter)
            result.expect(len(tries[name]) == wanted, f"{name} was handled {len(tries[name])} times; expected {wanted}")
            if name.startswith(KILLS):
                result.expect(tries[name] == [1, 2, 3, 4, 5], f"{name} was delivered as {tries[name]}")
                result.expect(met == (b"poison", b"5", True), f"the letter of {name} says {met}")
            else:
                result.expect((met[0], met[2]) == (b"poison", True), f"the letter of {name} says {met}")
    result.expect(not letters, f"{len(letters)} dead letters more: {list(letters.values())[:2]}")
