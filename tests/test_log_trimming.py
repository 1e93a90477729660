"""Logs are trimmed below every rank's oldest checkpoint, and only what lies in the archive by then."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from prometheus_client import CollectorRegistry

from esper.bus.connect import Redis
from esper.bus.names import key
from esper.bus.upkeep.floors import encoded, kept_key
from esper.leyline.archive import Entry, decode_line, encode_line
from esper.leyline.keys.keyring import SECOND_NS, SKEW_S, MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer
from esper.runtime.history.archive import Archive, ArchiveError
from esper.runtime.history.logbook import read_live
from esper.runtime.operations.tidying import StreamUpkeep
from esper.runtime.operations.trimming import MOST_LOOKED_AT, Trimmer
from tests.checkpoint_kit import Training
from tests.coordinator_kit import abort

LOGS = ("commands", "optimizer", "decisions", "receipts", "emergency")
WORKERS = ("worker-0", "worker-1")
NUM = 20


class Logs:
    """The five logs of a run, each with entries made at 1,000, 2,000, ... ms, read and settled by all their groups."""

    def __init__(self, redis: Redis, run_id: str, folder: Path) -> None:
        self.redis, self.run_id, self.archive = redis, run_id, Archive(folder / "log")
        self.keys = MasterKeyring.new(SKEW_S * SECOND_NS).derive(run_id, [Role.COORDINATOR])
        self.opener = Opener(self.keys, guard=None, accept=[Domain.DECISION])
        self.opened: list[str] = []
        self._decisions: dict[int, bytes] = {}
        self.trimmer = self.trimmer_that_keeps(1)

    def trimmer_that_keeps(self, newest: int) -> Trimmer:
        return Trimmer(self.redis, self.run_id, self.archive, self.read, newest_kept=newest)

    def read(self, sealed: bytes, entry_id: str) -> Opened:
        self.opened.append(entry_id)
        return self.opener.open(sealed, entry_id, NUM * 1000)

    async def fill(self, *, first: int = 1, last: int = NUM) -> None:
        for name in LOGS:
            for number in range(first, last + 1):
                await self.redis.xadd(key(self.run_id, name), {"m": self.sealed(name, number)}, id=f"{number}000-0")

    def sealed(self, name: str, number: int) -> bytes:
        if name != "decisions":
            return f"{name} {number} \n".encode() + bytes([number, 0, 255])
        if number not in self._decisions:
            sealer = Sealer(self.keys, Role.COORDINATOR, "coordinator", clock_ns=lambda: number * SECOND_NS)
            self._decisions[number] = sealer.seal(abort(number, 1), roster_generation=1)
        return self._decisions[number]

    async def settle(self, through: int = NUM) -> None:
        for name in LOGS[:3]:
            groups = [*WORKERS, *(["coordinator"] if name != "decisions" else [])]
            for group in groups:
                await self.redis.xgroup_create(key(self.run_id, name), group, id=f"{through}000-0")

    async def keep(self, worker: str, **positions: int) -> None:
        told = {name: f"{number}000-0" for name, number in positions.items()}
        await self.redis.hset(kept_key(self.run_id), worker, encoded(told))

    async def left(self) -> dict[str, list[int]]:
        """Numbers of the entries on each stream."""
        rows: dict[str, Any] = {
            name: await self.redis.ask(("XRANGE", key(self.run_id, name), "-", "+")) for name in LOGS
        }
        return {name: [int(row[0].split(b"-")[0]) // 1000 for row in found] for name, found in rows.items()}

    def archived(self, name: str) -> list[Entry]:
        path = self.archive.path(name)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found = [decode_line(line, number) for number, line in enumerate(lines, 1)]
        assert all(isinstance(each, Entry) for each in found)
        return found  # type: ignore[return-value]

    def entries(self, name: str, *numbers: int) -> list[Entry]:
        return [Entry(name, f"{number}000-0", self.sealed(name, number)) for number in numbers]


@pytest.fixture
async def logs(redis: Redis, run_id: str, tmp_path: Path) -> Logs:
    made = Logs(redis, run_id, tmp_path)
    await made.fill()
    return made


async def test_below_the_lowest_checkpoint_of_any_rank_all_is_archived_and_trimmed(logs: Logs) -> None:
    await logs.settle()
    await logs.keep("worker-0", commands=9, optimizer=12, decisions=10)
    await logs.keep("worker-1", commands=8, optimizer=15, decisions=11)
    kept_by_age = [key(logs.run_id, name) for name in ("global", "state", "dead")]
    for stream in kept_by_age:
        await logs.redis.xadd(stream, {"m": b"old"}, id="1000-0")

    num = await logs.trimmer.shorten()

    assert [await logs.redis.xlen(stream) for stream in kept_by_age] == [1, 1, 1]
    floors = {"commands": 8, "optimizer": 12, "decisions": 10, "receipts": 10, "emergency": 10}
    assert await logs.left() == {name: list(range(floor, NUM + 1)) for name, floor in floors.items()}
    assert num == sum(floor - 1 for floor in floors.values())
    for name, floor in floors.items():
        assert logs.archived(name) == logs.entries(name, *range(1, floor))


class Meanwhile:
    """The Redis of a run whose logs are trimmed just before each look at them."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    async def ask(self, words: Sequence[str]) -> Any:
        await self.logs.trimmer.shorten()
        return await self.logs.redis.ask(words)


async def test_a_log_that_is_trimmed_while_it_is_read_has_no_gap(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=9, optimizer=12, decisions=10)

    book = await read_live(cast(Redis, Meanwhile(logs)), logs.run_id, logs.archive.folder)

    assert book.streams == {name: logs.entries(name, *range(1, NUM + 1)) for name in LOGS}


async def test_without_a_checkpoint_of_every_worker_nothing_is_trimmed(logs: Logs) -> None:
    await logs.settle()
    before = await logs.trimmer.shorten()
    await logs.keep("worker-0", commands=9, optimizer=12, decisions=10)

    assert (before, await logs.trimmer.shorten()) == (0, 0)
    assert all(len(numbers) == NUM for numbers in (await logs.left()).values())


async def test_a_group_of_any_bytes_is_one_without_a_checkpoint(logs: Logs, redis: Redis, run_id: str) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, decisions=NUM, commands=NUM, optimizer=NUM)
    await redis.hset(kept_key(run_id), b"\xff", b"\xff")
    await redis.xgroup_create(key(run_id, "decisions"), b"\xff", id=f"{NUM}000-0")

    held_back = await logs.trimmer.shorten()
    await redis.xgroup_destroy(key(run_id, "decisions"), b"\xff")

    assert held_back == 0
    assert await logs.trimmer.shorten() > 0


async def test_what_a_group_has_pending_or_has_not_read_stays(logs: Logs, redis: Redis, run_id: str) -> None:
    await logs.settle(through=4)
    for worker in WORKERS:
        await logs.keep(worker, commands=9, optimizer=9, decisions=9)
    stream = key(run_id, "commands")
    for group in (*WORKERS, "coordinator"):
        await redis.xreadgroup(group, "c", {stream: ">"}, count=10)
    await redis.xack(stream, "worker-0", *[f"{number}000-0" for number in range(5, 15)])
    await redis.xack(stream, "coordinator", *[f"{number}000-0" for number in range(5, 15) if number != 7])
    await redis.xack(stream, "worker-1", *[f"{number}000-0" for number in range(5, 15) if number != 6])

    await logs.trimmer.shorten()

    left = await logs.left()
    assert (left["commands"][0], left["optimizer"][0], left["receipts"][0]) == (6, 4, 9)


async def test_while_a_group_that_must_be_there_is_missing_a_log_stays_whole(
    logs: Logs, redis: Redis, run_id: str
) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=9, optimizer=9, decisions=9)
    await redis.xgroup_destroy(key(run_id, "commands"), "coordinator")

    await logs.trimmer.shorten()

    left = await logs.left()
    assert (left["commands"][0], left["optimizer"][0]) == (1, 9)


async def test_the_newest_decisions_stay_for_a_coordinator_to_begin_with(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=19, optimizer=19, decisions=19)

    await logs.trimmer_that_keeps(6).shorten()

    assert (await logs.left())["decisions"] == list(range(15, NUM + 1))


async def test_junk_and_copies_are_none_of_the_newest_decisions(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=19, optimizer=19, decisions=19)
    for number in range(10):
        for place, body in enumerate((b"junk %d" % number, logs.sealed("decisions", NUM))):
            await logs.redis.xadd(key(logs.run_id, "decisions"), {"m": body}, id=f"{NUM}5{number}{place}-0")

    trimmer = logs.trimmer_that_keeps(6)
    await trimmer.shorten()
    num_opened = len(logs.opened)
    await trimmer.shorten()

    assert (await logs.left())["decisions"][:7] == [*range(15, NUM + 1), NUM]
    assert (num_opened, len(logs.opened)) == (26, 26)  # each entry is opened once


async def test_nor_are_copies_ahead_of_the_clock_of_what_is_older(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=19, optimizer=19, decisions=19)
    for number in range(1, 7):
        at = f"{NUM + 10}000-{number}"
        await logs.redis.xadd(key(logs.run_id, "decisions"), {"m": logs.sealed("decisions", number)}, id=at)

    await logs.trimmer_that_keeps(6).shorten()

    assert (await logs.left())["decisions"][:6] == list(range(15, NUM + 1))


async def test_behind_more_junk_than_is_looked_through_no_decision_is_trimmed(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=9, optimizer=9, decisions=9)
    async with logs.redis.pipeline(transaction=False) as sent:
        for number in range(MOST_LOOKED_AT):
            sent.execute_command("XADD", key(logs.run_id, "decisions"), f"{NUM}500-{number}", "m", b"junk")
        await sent.execute()

    await logs.trimmer.shorten()

    left = await logs.left()
    assert {name: numbers[0] for name, numbers in left.items()} == {
        "commands": 9,
        "optimizer": 9,
        "decisions": 1,
        "receipts": 1,
        "emergency": 1,
    }


async def test_an_archive_goes_on_where_it_was_also_behind_half_a_line(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=5, optimizer=5, decisions=5)
    await logs.trimmer.shorten()
    whole = logs.archive.path("commands").read_bytes()
    logs.archive.path("commands").write_bytes(whole + whole[:30])
    await logs.fill(first=NUM + 1, last=NUM + 2)
    for worker in WORKERS:
        await logs.keep(worker, commands=7, optimizer=7, decisions=7)

    await logs.trimmer.shorten()

    assert logs.archive.path("commands").read_bytes().startswith(whole)
    assert logs.archived("commands") == logs.entries("commands", *range(1, 7))


async def test_what_was_archived_and_not_trimmed_is_not_archived_twice(logs: Logs) -> None:
    """As where the process ends between the two."""
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=5, optimizer=5, decisions=5)
    with logs.archive.held():
        logs.archive.append("commands", logs.entries("commands", 1, 2))

    await logs.trimmer.shorten()

    assert logs.archived("commands") == logs.entries("commands", 1, 2, 3, 4)


async def test_what_can_not_be_archived_stays_and_is_told_once(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=5, optimizer=5, decisions=5)
    logs.archive.folder.parent.mkdir(exist_ok=True)
    logs.archive.folder.write_text("a file where a folder should be")

    with structlog.testing.capture_logs() as lines:
        trimmed = [await logs.trimmer.shorten() for _ in range(3)]

    assert trimmed == [0, 0, 0]
    assert [line["event"] for line in lines] == ["log.not_archived"]
    assert all(len(numbers) == NUM for numbers in (await logs.left()).values())


async def test_a_process_in_charge_trims_with_the_rest(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=5, optimizer=5, decisions=5)

    await StreamUpkeep(logs.run_id, "coordinator", logs.redis, CollectorRegistry(), logs=logs.trimmer).trim()

    assert (await logs.left())["commands"][0] == 5


async def test_one_process_archives_at_a_time(logs: Logs) -> None:
    await logs.settle()
    for worker in WORKERS:
        await logs.keep(worker, commands=5, optimizer=5, decisions=5)

    with logs.archive.held() as first, logs.archive.held() as second:
        passed = await logs.trimmer.shorten()

    assert (first, second, passed) == (True, False, 0)
    assert await logs.trimmer.shorten() > 0


def test_where_only_half_of_it_can_be_written_none_of_it_counts(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    small, large = Entry("commands", "1-0", b"a"), Entry("commands", "2-0", b"b" * 200_000)
    archive.append("commands", [small])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ArchiveError, match="File too large"):
            archive.append("commands", [large])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    torn = archive.path("commands").stat().st_size
    through = archive.through("commands")
    archive.append("commands", [large])

    assert (torn > 1_000, through, archive.through("commands")) == (True, "1-0", "2-0")
    assert archive.path("commands").read_bytes() == encode_line(small) + encode_line(large)


def test_a_rank_tells_where_the_logs_stood_at_the_oldest_checkpoint_that_it_still_has(tmp_path: Path) -> None:
    run, told = Training(tmp_path, keep=2), list[dict[str, str]]()
    run.checkpoints.on_kept = lambda positions: told.append(dict(positions))

    for step in (1, 2, 3):
        run.checkpoints.decided = f"{step}-0"
        run.checkpoints.save(step)

    assert told == [{"decisions": "1-0"}, {"decisions": "1-0"}, {"decisions": "2-0"}]
