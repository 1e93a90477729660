"""Genuine envelopes captured and replayed, to where they came from and to elsewhere, around restarts: none takes effect
again. What is delivered again by right, because its consumer died with it in hand, takes effect once."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from esper.leyline.keys.keyring import SECOND_NS, MasterKeyring, RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.leyline.window import SPAN, STRIDE
from tests.faults.audience import ALONE, TEAM, Audience, Seats, audience
from tests.faults.captures import STILL_IN_HAND, WAYS, Captures, Verdict
from tests.faults.processes import wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import RUN
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve
from tests.faults.stated import FRESH_S, added_ms, issued_ms

OTHER_RUN = "other-0a1b2c3d"
FOR_EVER_S = 3600.0
CAPTURED_S = 90  # so long ago were the oldest captures made
NUM_SEED = 20
ROLES = (Role.CONTROLLER, Role.WORKER, Role.COORDINATOR)
UNSEALED = ("bad_seal",)  # what a team refuses so, it deletes
SETTLED = [way for way in WAYS if way != STILL_IN_HAND]


class Replay(NamedTuple):
    """One envelope that was added again, and where."""

    way: str
    seats: Seats
    entry_id: str
    is_stale: bool  # by then, where the machine was slow

    def verdict(self, group: str) -> Verdict:
        """What has to become of it there."""
        verdict = WAYS[self.way].alone if group == ALONE else WAYS[self.way].team
        return "stale" if self.is_stale and verdict in (None, "replayed") else verdict


@dataclass(slots=True)
class Stage:
    """Two runs, one of which is listened in on."""

    audience: Audience
    seats: Seats
    other: Seats
    captures: Captures
    result: Result
    replays: list[Replay] = field(default_factory=list)
    redelivered: dict[str, set[str]] = field(default_factory=lambda: {ALONE: set(), TEAM: set()})
    num_others: int = 0

    def replay(self, ways: Sequence[str], count: int) -> None:
        """Add so many captures, the ways in turn."""
        plan = defaultdict[tuple[bool, str], list[tuple[str, bytes]]](list)
        for number in range(count):
            name = ways[number % len(ways)]
            way = WAYS[name]
            plan[way.elsewhere, way.stream].append((name, way.capture(self.captures)))
        for (elsewhere, stream), items in plan.items():
            seats = self.other if elsewhere else self.seats
            ids = self.audience.add(seats.key(stream), [sealed for _, sealed in items])
            self.replays += [
                Replay(name, seats, entry_id, is_stale(sealed, entry_id))
                for entry_id, (name, sealed) in zip(ids, items, strict=True)
            ]

    def await_end(self) -> None:
        """Wait until everybody is through with everything."""
        for seats in (self.seats, self.other):
            for stream in ("commands", "optimizer"):
                if self.audience.client.xlen(seats.key(stream)):
                    self.audience.await_end(seats, stream)


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result = Result()
    with serve(directory / "redis", UNKEPT) as server, audience(directory, server) as listeners:
        stage = staged(directory, listeners, random.Random(seed), result)
        begin(stage)
        for number in range(amounts["rounds"]):
            if number == amounts["rounds"] // 2:
                stage.captures.skip(SPAN + STRIDE)  # what was captured before lies below every window from now on
            die_in_hand(stage, amounts["redeliveries"] // amounts["rounds"] // 2)
            share = amounts["replays"] // amounts["rounds"]
            replay_around_restart(stage, share, by_kill=number % 2 == 0)
        listeners.stop(stage.other)
        judge(stage)
        listeners.expect_calm(result)
    return result


def staged(directory: Path, listeners: Audience, chance: random.Random, result: Result) -> Stage:
    """Both runs' keys come from one master."""
    master = MasterKeyring.new(time.time_ns())
    seats, other = Seats(RUN, directory / "run"), Seats(OTHER_RUN, directory / "other", members=1)
    for each in (seats, other):
        each.directory.mkdir()
        each.derive(master, ROLES)
    sealers = {role: Sealer(RoleKeyring.load(seats.directory / f"{role}.json"), role, role.value) for role in ROLES}
    return Stage(listeners, seats, other, Captures(chance, sealers), result)


def is_stale(sealed: bytes, entry_id: str) -> bool:
    """Whether an envelope was older than is admitted when it was added as this entry."""
    return added_ms(entry_id) - issued_ms(sealed) > FRESH_S * 1000


def begin(stage: Stage) -> None:
    """Some commands of each kind, carried out by everybody; the first of them long ago."""
    captures, stream = stage.captures, stage.seats.key("commands")
    then_ns = time.time_ns() - CAPTURED_S * SECOND_NS
    keys = RoleKeyring.load(stage.seats.directory / f"{Role.CONTROLLER}.json")
    captures.old += captures.publish(
        NUM_SEED, sealer=Sealer(keys, Role.CONTROLLER, "long-ago", clock_ns=lambda: then_ns)
    )
    stage.audience.add(stream, captures.old, [f"{then_ns // 1_000_000}-{number}" for number in range(NUM_SEED)])
    captures.by_generation[0] += captures.publish(NUM_SEED)
    captures.targeted += captures.publish(NUM_SEED, target=ALONE)
    stage.audience.add(stream, [*captures.by_generation[0], *captures.targeted])
    keys = RoleKeyring.load(stage.other.directory / f"{Role.CONTROLLER}.json")
    others = Captures(captures.chance, {Role.CONTROLLER: Sealer(keys, Role.CONTROLLER, "controller")})
    stage.audience.add(stage.other.key("commands"), others.publish(NUM_SEED))
    stage.num_others = len(others.due)
    for seats in (stage.seats, stage.other):
        stage.audience.listen(seats)
    stage.await_end()
    stage.audience.stop(stage.seats)


def die_in_hand(stage: Stage, count: int) -> None:
    """Commands delivered to listeners that die before they have settled one; their copies are there already when the
    next ones come."""
    captures, listeners, seats = stage.captures, stage.audience, stage.seats
    captures.generation += 1
    captures.in_hand = captures.publish(count)
    ids = set(listeners.add(seats.key("commands"), captures.in_hand))
    listeners.listen(seats, members=1, hold_s=FOR_EVER_S, count=count)
    for group, redelivered in stage.redelivered.items():
        holds_all = partial(holds, listeners, seats, group, ids)
        wait_until(holds_all, f"{group} has all of it in hand")
        redelivered |= ids
    stage.result.count("sigkills_in_hand", listeners.kill(seats))
    captures.by_generation[captures.generation] += captures.in_hand


def holds(listeners: Audience, seats: Seats, group: str, ids: set[str]) -> bool:
    return set(listeners.pending(seats, group)) == ids


def replay_around_restart(stage: Stage, count: int, *, by_kill: bool) -> None:
    """A tenth beside what is still in hand, the rest in halves: to listeners that saw it all, and to new ones."""
    beside = count // len(WAYS)
    before = (count - beside) // 2
    stage.replay([STILL_IN_HAND], beside)
    stage.audience.listen(stage.seats)
    stage.await_end()
    stage.replay(SETTLED, before)
    stage.await_end()
    if by_kill:
        stage.result.count("sigkills", stage.audience.kill(stage.seats))
    else:
        stage.result.count("sigterms", stage.audience.stop(stage.seats))
    stage.replay(SETTLED, count - beside - before)
    stage.audience.listen(stage.seats)
    stage.await_end()
    stage.audience.stop(stage.seats)


# -- what came of it ---------------------------------------------------------------------------------------------------


def judge(stage: Stage) -> None:
    stage.result.count("commands", len(stage.captures.due))
    for group in (ALONE, TEAM):
        judge_effects(stage, group)
        judge_redeliveries(stage, group)
        judge_replays(stage, group)
    stage.result.count("replays", len(stage.replays))
    for name, times in Counter(replay.way for replay in stage.replays).items():
        stage.result.count(name, times)


def judge_effects(stage: Stage, group: str) -> None:
    """Each command of a run took effect there once, and nothing else did."""
    due = {each for each in stage.captures.due if group == ALONE or not each.startswith(ALONE)}
    took = stage.audience.effects(stage.seats, group)
    wrong = {each: took[each] for each in due | took.keys() if took[each] != int(each in due)}
    stage.result.expect(not wrong, f"{group}: {len(wrong)} did not take effect once: {dict(sorted(wrong.items())[:5])}")
    stage.result.count("replays_applied", sum(took.values()) - len(took))
    others = stage.audience.effects(stage.other, group)
    is_right = len(others) == stage.num_others == sum(others.values())
    stage.result.expect(is_right, f"{group} of the other run carried out {others}")


def judge_redeliveries(stage: Stage, group: str) -> None:
    """What died with a consumer was really delivered again."""
    told = stage.audience.heard(stage.seats, group, "commands")
    again = {each["entry_id"] for each in told["applied"] + told["opened"] if each["attempts"] > 1}
    due = stage.redelivered[group]
    stage.result.count(f"redelivered_{group}", len(due))
    stage.result.count("redeliveries", len(due))
    stage.result.expect(due <= again, f"{group}: {len(due - again)} of {len(due)} were not delivered again")


def judge_replays(stage: Stage, group: str) -> None:
    """Each was met, and refused for what it is."""
    reasons, opened = {}, {}
    for seats in (stage.seats, stage.other):
        for stream in ("commands", "optimizer"):
            told = stage.audience.heard(seats, group, stream)
            reasons[seats.run, stream] = {each["entry_id"]: each["reason"] for each in told["refused"]}
            opened[seats.run, stream] = {each["entry_id"] for each in told["opened"]}
    wrong = []
    for replay in stage.replays:
        name, seats, entry_id, _ = replay
        place, verdict = (seats.run, WAYS[name].stream), replay.verdict(group)
        met = reasons[place].get(entry_id) if entry_id not in opened[place] else None
        if group == ALONE and met is None and verdict in UNSEALED:
            stage.result.count("alone_never_saw")
            continue  # the team was faster
        stage.result.count(f"{group}_{met or 'known_by_redis'}")
        if met != verdict or (verdict is None and entry_id not in opened[place]):
            wrong.append((name, entry_id, met))
    stage.result.expect(not wrong, f"{group}: {len(wrong)} replays not met as they should be: {wrong[:5]}")


ROW = Row(
    "replay",
    run,
    ci={"replays": 2_000, "redeliveries": 2_000, "rounds": 2},
    chunk={"replays": 5_000, "redeliveries": 5_000, "rounds": 4},
    num_chunks=20,
    anywhere=True,
)
