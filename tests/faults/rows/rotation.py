"""Keys rotated under load while everybody follows their files: nothing valid is refused, and nothing is believed that
came with a key after its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from esper.leyline.checks import MS_NS
from esper.leyline.keys.keyring import SECOND_NS, MasterKeyring, RoleKeyring, Validity
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.faults.accounts import events
from tests.faults.audience import ALONE, TEAM, Audience, Seats, audience
from tests.faults.captures import command
from tests.faults.history import records
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, Server
from tests.faults.stated import added_ms, key_id_of

LEAD_S = 2  # the shortest that `esper keys rotate` takes: everybody looks once a second
OVERLAP_S = 1
BETWEEN_S = 1.0
LATE_S = 0.4  # before its end a key seals what is read after it
ROLES = (Role.CONTROLLER, Role.WORKER)
PUBLISHER = "publisher"
ENDLESS = 10_000_000  # messages


@dataclass(slots=True)
class Ended:
    """A key whose end is known, and what was sealed with it around that end, by entry."""

    validity: Validity
    keyring: RoleKeyring  # as somebody kept it who was not told of the end
    added: dict[str, str] = field(default_factory=dict)

    def is_late(self, entry_id: str) -> bool:
        """Whether an entry came after the end."""
        return added_ms(entry_id) * MS_NS >= self.validity.not_after_ns


@dataclass(slots=True)
class Stage:
    """One run whose keys are rotated."""

    audience: Audience
    seats: Seats
    result: Result
    publisher: Child
    master: MasterKeyring
    num_forged: int  # for each key
    ended: list[Ended] = field(default_factory=list)

    @property
    def stream(self) -> str:
        return self.seats.key("commands")

    def uses_newest(self) -> bool:
        """Whether the newest entry was sealed with the newest key."""
        newest: Any = self.audience.client.xrevrange(self.stream, count=1)
        return key_id_of(newest[0][1][b"m"]) == self.master.validities[-1].key_id

    def rotate(self) -> None:
        """A key more: every file is written over at once, while its process runs."""
        before = self.master
        self.master = before.rotate(time.time_ns(), lead_s=LEAD_S, overlap_s=OVERLAP_S)
        self.seats.derive(self.master, ROLES)
        ended = self.master.validities[len(before.validities) - 1]
        self.ended.append(Ended(ended, before.derive(RUN, [Role.CONTROLLER])))
        self.result.count("rotations")

    def attend(self, number: int) -> None:
        """Around the end of a key: what is added before it and read after it, and what is added after it."""
        key = self.ended[number]
        last = self._sealed(key, f"last-{number}", 20)
        await_time(key.validity.not_after_ns - int(LATE_S * SECOND_NS))
        with self.everybody_paused():
            self._add(key, last)
            await_time(key.validity.not_after_ns + MS_NS)
        self._add(key, self._sealed(key, f"forged-{number}", self.num_forged))

    def _add(self, key: Ended, sealed: dict[str, bytes]) -> None:
        entry_ids = self.audience.add(self.stream, list(sealed.values()))
        key.added.update(zip(entry_ids, sealed, strict=True))

    def _sealed(self, key: Ended, name: str, count: int) -> dict[str, bytes]:
        """Commands under a key that is about to end, or has ended, by a clock that says that it is valid."""
        until_ns = key.validity.not_after_ns - 1
        sealer = Sealer(key.keyring, Role.CONTROLLER, name, clock_ns=lambda: min(time.time_ns(), until_ns))
        sealed = {f"{name}/{each}": sealer.seal(command(f"{name}/{each}")) for each in range(count)}
        used = {key_id_of(each) for each in sealed.values()}
        assert used == {key.validity.key_id}, f"sealed with {used}, not with the key that ends"
        return sealed

    @contextmanager
    def everybody_paused(self) -> Iterator[None]:
        """So that what is added meanwhile is read afterwards."""
        children = self.audience.on[RUN]
        for child in children:
            child.pause()
        yield
        for child in children:
            child.resume()


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    del seed  # keys are drawn from the system's randomness
    result, seats = Result(), Seats(RUN, directory / "run")
    seats.directory.mkdir()
    master = MasterKeyring.new(time.time_ns())
    seats.derive(master, ROLES)
    with Server(directory / "redis", options=UNKEPT) as server, audience(directory, server) as listeners:
        listeners.listen(seats)
        count = amounts["messages"] if amounts["spread"] else ENDLESS
        publisher = listeners.start("publisher", PUBLISHER, seats, count=count, per_s=amounts["per_s"], together=32)
        stage = Stage(listeners, seats, result, publisher, master, amounts["forged"])
        wait_until(lambda: bool(listeners.client.xlen(stage.stream)), "the flow has begun")
        if amounts["spread"]:
            rotate_spread(stage, amounts["rotations"], amounts["messages"])
        else:
            rotate_in_a_row(stage, amounts["rotations"])
            wait_until(stage.uses_newest, "the newest key seals")
            publisher.terminate(SOON_S)
        wait_until(lambda: not publisher.alive, "everything is published", 300.0)
        listeners.await_end(seats, "commands", 300.0)
        listeners.stop(seats)
        judge(stage)
        listeners.expect_calm(result)
    return result


def rotate_in_a_row(stage: Stage, times: int) -> None:
    """The next rotation while the one before is on its way."""
    for number in range(times):
        due_ns = time.time_ns()
        stage.rotate()
        if number + 1 < times:
            await_time(due_ns + int(BETWEEN_S * SECOND_NS))
    for number in range(times):
        stage.attend(number)


def rotate_spread(stage: Stage, times: int, num_messages: int) -> None:
    """One by one, all along the flow."""
    for number in range(times):
        due = num_messages * (number + 1) // (times + 1)
        wait_until(lambda due=due: stage.audience.client.xlen(stage.stream) >= due, "the next is due", 300.0)  # type: ignore[misc]
        stage.rotate()
        stage.attend(number)


def await_time(at_ns: int) -> None:
    wait_until(lambda: time.time_ns() >= at_ns, "it is time")


# -- what came of it ---------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A command in the stream, and whether its key was valid at its time."""

    command_id: str
    entry_id: str
    key_id: int
    is_valid: bool


def judge(stage: Stage) -> None:
    result = stage.result
    entries = list(published(stage))
    result.count("messages", len(entries))
    result.count("keys_used", len({each.key_id for each in entries}))
    result.expect(result.counts["keys_used"] == len(stage.master.validities), "not every key has sealed something")
    overtaken = [each for each in entries if not each.is_valid]
    result.count("overtaken", len(overtaken))  # sealed in time, and added after the end by a process that stood still
    valid = {each.command_id for each in entries if each.is_valid}
    added = [(at, each, key.is_late(at)) for key in stage.ended for at, each in key.added.items()]
    in_time = {each for _, each, is_late in added if not is_late}
    forged = {at for at, _, is_late in added if is_late}
    result.count("read_after_the_end", len(in_time))
    result.count("added_after_the_end", len(forged))
    result.expect_soon(bool(in_time), "nothing was added before the end of its key and read after it")
    for group in (ALONE, TEAM):
        took = stage.audience.effects(stage.seats, group)
        due = valid | in_time
        wrong = {each: took[each] for each in due | took.keys() if took[each] != int(each in due)}
        result.expect(not wrong, f"{group}: {len(wrong)} of {len(due)} did not take effect as due: {sample(wrong)}")
        judge_refusals(stage, group, forged, {each.entry_id for each in overtaken})
    judge_adoption(stage)


def published(stage: Stage) -> Iterator[Entry]:
    """What the publisher was told is in the stream."""
    validities = {each.key_id: each for each in stage.master.validities}
    key_ids = dict(keys_of(stage))
    for record in records(stage.seats.directory / "history", PUBLISHER):
        if record["what"] == "acknowledged":
            key_id = key_ids[record["entry_id"]]
            until_ns = validities[key_id].not_after_ns
            yield Entry(record["id"], record["entry_id"], key_id, added_ms(record["entry_id"]) * MS_NS < until_ns)


def keys_of(stage: Stage) -> Iterator[tuple[str, int]]:
    """Which key sealed each entry that the stream still holds."""
    after = "-"
    while True:
        page: Any = stage.audience.client.xrange(stage.stream, min=after, count=5_000)
        for entry_id, fields in page:
            yield entry_id.decode(), key_id_of(fields[b"m"])
        if not page:
            return
        after = f"({page[-1][0].decode()}"


def judge_refusals(stage: Stage, group: str, forged: set[str], overtaken: set[str]) -> None:
    """What came with a key after its time, and nothing else; by its name. The team may delete what others never see."""
    told = stage.audience.heard(stage.seats, group, "commands")["refused"]
    reasons = {record["entry_id"]: record["reason"] for record in told}
    stage.result.count(f"refused_{group}", len(reasons))
    strangers = {
        at: reason for at, reason in reasons.items() if at not in forged | overtaken or reason != "unknown_key"
    }
    stage.result.expect(not strangers, f"{group} refused {len(strangers)} that were valid: {sample(strangers)}")
    missed = forged - reasons.keys() if group == TEAM else set()
    stage.result.expect(not missed, f"{group} refused nothing of {sorted(missed)[:5]}")


def judge_adoption(stage: Stage) -> None:
    """Every process took up every file."""
    for log in stage.audience.logs:
        times = len(events(log, "keyring.adopted"))
        stage.result.count("keyrings_adopted", times)
        stage.result.expect(times > 0, f"{log.stem} never took up a file")


def sample(found: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(found.items())[:5])


ROW = Row(
    "rotation",
    run,
    ci={"rotations": 3, "per_s": 1_200, "forged": 200, "spread": 0},
    chunk={"rotations": 5, "messages": 100_000, "per_s": 4_000, "forged": 2_000, "spread": 1},
    num_chunks=10,
)
