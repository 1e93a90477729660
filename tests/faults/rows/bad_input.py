"""Bad input of every class among good input: refused for the right reason, never applied, and nobody dies of it."""

from __future__ import annotations

import hashlib
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.check import judge
from tests.faults.forge import Forge, Secrets
from tests.faults.fuzz import OPEN, REFUSED, rounds
from tests.faults.fuzz_case import Case, Class
from tests.faults.gate import Gate, resident_bytes
from tests.faults.nursery import nursed
from tests.faults.poison import poison
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, Server
from tests.faults.station import MODULES, Station

RUN, POISONED = "faults-0a1b2c3d", "poison-0a1b2c3d"
NOW_MS = 1_800_000_000_000
GOOD_EVERY = 8
NUM_FIRST = 80  # good ones before any other
MOST_BYTES = 50 << 20  # that a process may have grown by
HEAD_BYTES = 64
NUM_LETTERS = 1_000  # at once; beyond them there is one a second
NUM_HEAVY = 1  # of each class, on the stream


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    in_process(amounts["in_process"], chance, result)
    with ExitStack() as stack:
        server = stack.enter_context(Server(directory / "redis", options=UNKEPT))
        nursery = stack.enter_context(nursed(directory, MODULES))

        def stage(run: str) -> tuple[Station, Forge]:
            secrets = Secrets(run, time.time_ns(), chance)
            station = Station(directory / run[:6], secrets, server, nursery, stack)
            return station, Forge(secrets, time.time_ns, chance)

        on_stream(*stage(RUN), amounts["on_stream"], result)
        station, forge = stage(POISONED)
        poison(station, forge, amounts["poisons"], result)
        result.violations += judge(station.history)
    return result


# -- through the opener alone ------------------------------------------------------------------------------------------


def in_process(num_refused: int, chance: random.Random, result: Result) -> None:
    forge = Forge(Secrets(RUN, NOW_MS * 1_000_000, chance), lambda: NOW_MS * 1_000_000, chance)
    gate, began = Gate(forge, NOW_MS, result), 0
    for _ in range(NUM_FIRST):
        gate.good()
    for number, drawn in enumerate(rounds(num_refused, chance)):
        for at, (kind, sample) in enumerate(drawn):
            gate.bad(kind, sample)
            if at % GOOD_EVERY == 0:
                gate.good()
        if number == 0:
            began = resident_bytes()
    gate.judge()
    expect_flat("the reader", resident_bytes() - began, result)
    missed = [each.name for each in (*REFUSED, *OPEN) if not gate.met[each.name]]
    result.expect(not missed, f"classes that never came: {missed}")
    for times in gate.met.values():
        result.sample("samples_of_a_class", times)


def expect_flat(who: str, grown_bytes: int, result: Result) -> None:
    result.sample("grown_mb", grown_bytes / (1 << 20))
    result.expect(grown_bytes < MOST_BYTES, f"{who} has grown by {grown_bytes >> 20} MiB")


# -- through a worker on a real stream ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Sent:
    """What lies on the stream."""

    bad: dict[str, tuple[Class, Case]] = field(default_factory=dict)
    heavy: dict[str, int] = field(default_factory=dict)

    def has_enough(self, kind: Class) -> bool:
        """Of what would fill the server."""
        return kind.heavy and self.heavy.get(kind.name, 0) >= NUM_HEAVY


def on_stream(station: Station, forge: Forge, num_refused: int, result: Result) -> None:
    worker, sent = station.start("worker", "worker-a"), Sent()
    pid = worker.pid
    add_good(station, forge, NUM_FIRST)
    wait_until(station.is_through, "the worker has begun")
    began = resident_bytes(pid)
    for drawn in rounds(num_refused, forge.chance):
        add(station, forge, drawn, sent)
    add_good(station, forge, NUM_FIRST)
    station.drain()
    expect_flat("the worker", resident_bytes(pid) - began, result)
    result.expect(worker.alive and worker.pid == pid, f"the worker died: {worker.last_words()}")
    stop(worker, station, result)
    result.violations += judge(station.history)
    judge_letters(station, sent, result)
    result.count("on_stream", len(sent.bad))
    result.count("genuine", len(station.applied()))


def add_good(station: Station, forge: Forge, count: int) -> None:
    made = [forge.genuine() for _ in range(count)]
    station.add([((b"m", sealed), command_id) for command_id, sealed in made])
    forge.recent.extend(sealed for _, sealed in made)


def add(station: Station, forge: Forge, drawn: list[tuple[Class, int]], sent: Sent) -> None:
    """A round of bad entries, of odd ones that take effect, and of good ones between them."""
    round_: list[tuple[Class | None, Case]] = []
    for at, (kind, number) in enumerate(drawn):
        if kind in OPEN or sent.has_enough(kind):
            continue
        if kind.heavy:
            sent.heavy[kind.name] = sent.heavy.get(kind.name, 0) + 1
        round_.append((None if kind.passes else kind, kind.make(forge, number)))
        if at % GOOD_EVERY == 0:
            command_id, sealed = forge.genuine()
            round_.append((None, Case((b"m", sealed), command_id)))
    ids = station.add([(case.fields, case.command_id if kind is None else "") for kind, case in round_])
    sent.bad.update(
        (entry_id, (kind, case)) for entry_id, (kind, case) in zip(ids, round_, strict=True) if kind is not None
    )


def stop(worker: Child, station: Station, result: Result) -> None:
    worker.terminate(SOON_S)
    result.expect(
        "Traceback" not in (said := station.log("worker-a").read_text()), f"it had a traceback: {said[-500:]}"
    )


def judge_letters(station: Station, sent: Sent, result: Result) -> None:
    """Each letter names a reason of its class, and holds of the message its hash and its beginning alone."""
    letters = station.letters()
    told = {entry_id for entry_id, (kind, _) in sent.bad.items() if not kind.by_record}
    result.expect(letters.keys() <= told, f"dead letters of what is genuine: {sorted(letters.keys() - told)[:5]}")
    result.expect(len(letters) >= min(len(told), NUM_LETTERS), f"{len(letters)} dead letters of {len(told)} refused")
    for entry_id, letter in letters.items():
        kind, case = sent.bad[entry_id]
        met = letter[b"reason"].decode()
        result.expect(met in kind.allowed, f"{kind.name} on the stream: {met}; expected {sorted(kind.allowed)}")
        facts = (letter[b"head"], letter[b"sha256"].decode(), letter[b"size"], letter[b"attempts"])
        body = case.body
        wanted = (body[:HEAD_BYTES], hashlib.sha256(body).hexdigest(), b"%d" % len(body), b"1")
        result.expect(facts == wanted, f"the letter of {kind.name} says {facts}; expected {wanted}")
        result.expect(b"m" not in letter, f"the letter of {kind.name} holds the whole message")
    result.count("dead_letters", len(letters))


ROW = Row(
    "bad_input",
    run,
    ci={"in_process": 19_000, "on_stream": 1_000, "poisons": 2},
    chunk={"in_process": 95_000, "on_stream": 5_000, "poisons": 2},
    num_chunks=20,
)
