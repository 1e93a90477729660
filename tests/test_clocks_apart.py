"""Processes whose clocks are apart: each goes by the server's, also for what it seals."""

from __future__ import annotations

import time

import pytest

from esper.bus import names, tail
from esper.bus.connect import ServerClock
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.keys.keyring import MasterKey, MasterKeyring, Validity
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.leyline.succession import Said
from esper.runtime.serving.clock_skew import DatedOpener
from tests.beside_kit import Run as Steered, steered
from tests.coordinator_kit import Run, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run", "steered"]
TEN_MINUTES_MS = 600_000
NOW_MS, S = 1_800_000_000_000, 1_000_000_000
MASTER = MasterKeyring([MasterKey(Validity(1, 0, 2**63), bytes(32))])
KEYS = {role: MASTER.derive("r", [role]) for role in (Role.COORDINATOR, Role.WORKER)}


class Handset(ServerClock):
    """A clock that shows what it is told to."""

    def now_ms(self) -> int:
        assert self.offset_ms is not None
        return self.offset_ms

    def show(self, ms: int) -> None:
        if self.offset_ms is not None:
            self._newest_ms = max(self._newest_ms, self.now_ms())
        self.offset_ms = ms


def ahead_s(sealer: Sealer, said: pb.LeaderAnnouncement | pb.Heartbeat) -> float:
    """Of this machine's clock."""
    return (unpack(sealer.seal(said)).header.issued_at_ns - time.time_ns()) / 1e9


async def test_a_coordinator_seals_by_the_servers_clock(run: Run) -> None:
    coordinating = await run.coordinator()
    sealer, said = coordinating.seals.sealer, pb.LeaderAnnouncement(version=1, leader="c", lease_token=1)
    before_s = ahead_s(sealer, said)

    assert coordinating.clock.offset_ms is not None
    coordinating.clock.offset_ms += TEN_MINUTES_MS

    assert abs(before_s) < 60
    assert abs(ahead_s(sealer, said) - before_s - 600) < 60


async def test_a_runtime_seals_by_the_servers_clock(steered: Steered) -> None:
    async with steered.runtime() as (beside, _):
        before_s = ahead_s(beside.sealer, heartbeat())

        assert beside.clock.offset_ms is not None
        beside.clock.offset_ms += TEN_MINUTES_MS

        assert abs(before_s) < 60
        assert abs(ahead_s(beside.sealer, heartbeat()) - before_s - 600) < 60


async def test_a_command_in_hand_is_answered_once_though_its_group_is_gone_and_the_clock_set_back(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)

    await run.redis.xgroup_destroy(names.key(run.run_id, "commands"), "coordinator")
    assert coordinating.clock.offset_ms is not None
    coordinating.clock.offset_ms -= TEN_MINUTES_MS
    await step_until_idle(coordinating)
    coordinating.clock.offset_ms += TEN_MINUTES_MS
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    assert await run.receipts() == [("s0-1", entry, "NONE")]


@pytest.mark.parametrize("has_seen", [True, False], ids=["seen there", "never there"])
@pytest.mark.parametrize("guard", [ReplayGuard(), None], ids=["in flight", "on record"])
def test_what_was_added_before_the_clock_was_set_back_is_as_old_as_its_entry(
    guard: ReplayGuard | None, has_seen: bool
) -> None:
    clock, before_ms = Handset(), NOW_MS + TEN_MINUTES_MS
    sealer = Sealer(KEYS[Role.COORDINATOR], Role.COORDINATOR, "c", clock_ns=clock.now_ns)
    opener = DatedOpener(KEYS[Role.WORKER], clock, guard=guard, accept=[Domain.DECISION])
    clock.show(before_ms - 900)  # a look is no better than its round trip
    said = sealer.seal(pb.LeaderAnnouncement(version=1, leader="c", lease_token=1))

    clock.show(NOW_MS)
    if not has_seen:
        clock._newest_ms = 0

    if has_seen or guard is None:
        assert opener.open(said, f"{before_ms}-0", NOW_MS).message == pb.LeaderAnnouncement(
            version=1, leader="c", lease_token=1
        )
    else:  # as where a stream's clock was poisoned
        with pytest.raises(RefusedError, match="after its entry was made"):
            opener.open(said, f"{before_ms}-0", NOW_MS)


async def test_a_coordinator_that_begins_reads_what_was_decided_before_the_clock_was_set_back(run: Run) -> None:
    first = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate("s0"))
    await step_until_idle(first)
    on_record = await tail.last(run.redis, names.key(run.run_id, "decisions"), 100)

    second = await run.coordinator()
    assert second.clock.offset_ms is not None
    second.clock.offset_ms -= TEN_MINUTES_MS

    assert len(on_record) > 1
    for entry_id, sealed in on_record:
        assert isinstance(second.decision(sealed, entry_id).message, Said)


def test_a_sealer_whose_clock_is_set_back_behind_a_change_of_keys_takes_the_key_of_then() -> None:
    clock, turn_ns = Handset(), NOW_MS * 1_000_000
    keys = [MasterKey(Validity(1, 0, turn_ns + 3600 * S), bytes(32)), MasterKey(Validity(2, turn_ns, 2**63), b"2" * 32)]
    ring = MasterKeyring(keys)
    sealer = Sealer(ring.derive("r", [Role.WORKER]), Role.WORKER, "worker-0", clock_ns=clock.now_ns)
    opener = Opener(ring.derive("r", [Role.COORDINATOR]), guard=None, accept=[Domain.HEARTBEAT])

    for at_ms in (NOW_MS + 1000, NOW_MS - TEN_MINUTES_MS):
        clock.show(at_ms)
        assert opener.open(sealer.seal(heartbeat()), f"{at_ms}-0", at_ms).message == heartbeat()
