"""What a worker has voted on is answered before it is acknowledged, whoever died meanwhile and whatever was set."""

from __future__ import annotations

import asyncio
import time

import pytest

from esper.bus import names, tail
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.entries import entry_order
from esper.leyline.envelope import unpack
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.altered import altered
from tests.beside_kit import ME, PATIENCE_S, Run, serves, steered

__all__ = ["steered"]

MINUTE_MS, MS_NS = 60_000, 1_000_000
NAMED = [pb.CommittedCommand(stream="commands", entry_id="1-1", command_id="c1", envelope_digest=bytes(32))]
PROPOSAL = pb.BarrierProposal(version=1, round=1, lease_token=1, roster=[ME])
COMMIT = pb.BarrierCommit(
    version=1, round=1, effective_step=9, commands=NAMED, digest=barrier_digest(9, NAMED, []), lease_token=1
)
ABORT = pb.BarrierAbort(version=1, round=1, lease_token=1, detail="given up")
NOT_KNOWN = [("c1", pb.ReceiptStatus.RECEIPT_FAILED, pb.ReasonCode.REASON_ROSTER_CHANGED)]


class Decisions:
    """A run's, sealed and added by clocks that may be ahead of the one that its Redis has by now.

    Another key takes over in half an hour.
    """

    def __init__(self, run: Run, *, sealed_min: int = 0, added_min: int = 0) -> None:
        self.run, self.stream = run, names.key(run.run_id, "decisions")
        now_ms = time.time_ns() // MS_NS
        self._added_ms, self._num = now_ms + added_min * MINUTE_MS, 0
        sealed_ns = (now_ms + sealed_min * MINUTE_MS) * MS_NS
        master = MasterKeyring.new(time.time_ns()).rotate((now_ms + 30 * MINUTE_MS) * MS_NS)
        run.keyring.adopt(master.derive(run.run_id, [Role.WORKER]))
        keys = master.derive(run.run_id, [Role.COORDINATOR])
        self.seal = Sealer(keys, Role.COORDINATOR, "coordinator", clock_ns=lambda: sealed_ns).seal

    async def add(self, sealed: bytes) -> str:
        at, self._num = f"{self._added_ms}-{self._num}", self._num + 1
        await self.run.redis.execute_command("XADD", self.stream, at, "m", sealed)
        return at

    async def hand_over(self) -> None:
        """To a runtime of this worker that dies of it."""
        await self.run.redis.execute_command("XGROUP", "CREATE", self.stream, ME, "0", "MKSTREAM")
        await self.run.redis.execute_command("XREADGROUP", "GROUP", ME, ME, "STREAMS", self.stream, ">")

    async def pending(self) -> int:
        return int((await self.run.redis.xpending(self.stream, ME))["pending"])

    async def is_settled(self, at: str) -> bool:
        """Whether it was handed over, and acknowledged."""
        groups = await self.run.redis.xinfo_groups(self.stream)
        is_handed = [entry_order(each["last-delivered-id"].decode()) >= entry_order(at) for each in groups] == [True]
        return is_handed and not await self.run.redis.xpending_range(self.stream, ME, at, at, 1)

    async def answers(self) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        for _, sealed in await tail.last(self.run.redis, names.key(self.run.run_id, "receipts"), 100):
            parts = unpack(sealed)
            receipt = pb.CommandReceipt.FromString(sealed[parts.body_start : parts.body_end])
            found.append((receipt.command_id, receipt.status, receipt.reason))
        return found

    async def are_read(self, *, past: str = "0-0") -> None:
        """By a runtime whose trainer began behind `past`, until the newest is settled."""
        newest = await tail.newest_id(self.run.redis, self.stream)
        async with self.run.runtime(decided=past) as (beside, trainer), asyncio.timeout(PATIENCE_S):
            serving = asyncio.create_task(serves(beside))
            while not await self.is_settled(newest):
                assert not serving.done()
            trainer.hang_up()
            await serving


async def test_what_was_decided_on_the_vote_of_a_trainer_that_ended_is_answered_though_none_had_read_it(
    steered: Run,
) -> None:
    decisions = Decisions(steered)
    await decisions.add(decisions.seal(PROPOSAL))
    await decisions.hand_over()
    decided = await decisions.add(decisions.seal(COMMIT))

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == (NOT_KNOWN, 0)


async def test_also_where_the_next_runtime_ends_between_the_two_entries_of_that_round(steered: Run) -> None:
    decisions = Decisions(steered)
    await decisions.add(decisions.seal(PROPOSAL))
    await decisions.hand_over()
    led = await decisions.add(decisions.seal(pb.LeaderAnnouncement(version=1, leader="c", lease_token=1)))
    decided = following(led)
    await decisions.are_read(past=decided)
    assert await decisions.add(decisions.seal(COMMIT)) == decided

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == (NOT_KNOWN, 0)


async def test_nobody_answers_for_a_round_of_which_no_vote_was_asked(steered: Run) -> None:
    decisions = Decisions(steered)
    await decisions.add(decisions.seal(PROPOSAL))
    decided = await decisions.add(decisions.seal(COMMIT))

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == ([], 0)


async def test_nor_for_one_that_was_given_up_and_is_decided_once_more(steered: Run) -> None:
    decisions = Decisions(steered)
    await decisions.add(decisions.seal(PROPOSAL))
    await decisions.hand_over()
    await decisions.add(decisions.seal(ABORT))
    decided = await decisions.add(decisions.seal(COMMIT))

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == ([], 0)


@pytest.mark.parametrize("sealed_min", [60, -5], ids=["before it was set back", "since then"])
async def test_what_a_trainer_was_told_is_answered_though_the_clock_was_set_back_and_its_key_is_yet_to_be_valid(
    steered: Run, sealed_min: int
) -> None:
    decisions = Decisions(steered, sealed_min=sealed_min, added_min=60)
    decided = await decisions.add(decisions.seal(COMMIT))
    await decisions.hand_over()

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == (NOT_KNOWN, 0)


async def test_and_is_told_again_to_a_trainer_that_lives(steered: Run) -> None:
    decisions = Decisions(steered, sealed_min=60, added_min=60)
    await decisions.add(decisions.seal(PROPOSAL))
    await decisions.hand_over()

    async with steered.runtime() as (beside, trainer):
        serving = asyncio.create_task(serves(beside))
        told = await asyncio.wait_for(trainer.hears("proposal"), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert told.proposal == PROPOSAL


@pytest.mark.parametrize("what", ["new", "junk", "old"])
async def test_what_is_new_or_junk_or_was_never_fresh_is_acknowledged_and_answered_by_none(
    steered: Run, what: str
) -> None:
    decisions = Decisions(steered, sealed_min=-5 if what == "old" else 60, added_min=0 if what == "old" else 60)
    sealed = decisions.seal(COMMIT)
    decided = await decisions.add(altered(sealed) if what == "junk" else sealed)
    if what != "new":
        await decisions.hand_over()

    await decisions.are_read(past=decided)

    assert (await decisions.answers(), await decisions.pending()) == ([], 0)


def following(entry_id: str) -> str:
    """The next one in its millisecond."""
    ms, count = entry_order(entry_id)
    return f"{ms}-{count + 1}"
