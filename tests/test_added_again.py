"""A command whose reply was lost is added again: whichever of its entries takes effect, its sender is told so."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from esper.bus.faults import LostError, OutOfMemoryError, ReadOnlyError
from esper.bus.names import key
from esper.bus.retry import Added, add_until_answered
from esper.client import Controller
from esper.errors import BusError, CommandFailedError
from esper.leyline import commands, contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime.watching.dispatch import Dispatch
from esper.runtime.watching.receipts import Answers, Ledger
from tests.bus_kit import bodies
from tests.faults.proxy import Proxy
from tests.scripted import WORKERS, ScriptedRun, accepted, applied, cancelled, rejected

FIRST, LAST, COPY = "1700000000000-0", "1700000000400-0", "1700000009000-0"
NOW_NS = 1_700_000_000_000_000_000
Reason = pb.ReasonCode


def heard(*receipts: pb.CommandReceipt, answered: int, added_again: bool = True) -> Answers:
    """The answers to c1 in its last entry, which is known once so many receipts have come."""
    ledger, role = Ledger(), Role.COORDINATOR
    for receipt in receipts[:answered]:
        ledger.note(receipt, role if receipt.worker == role else Role.WORKER)
    answers = ledger.claim("c1", LAST, added_again=added_again)
    for receipt in receipts[answered:]:
        ledger.note(receipt, role if receipt.worker == role else Role.WORKER)
    return answers


def outcomes(entry_id: str) -> list[pb.CommandReceipt]:
    return [applied("c1", entry_id, worker) for worker in WORKERS]


@pytest.mark.parametrize("answered", range(5))
def test_the_first_of_two_entries_is_applied_and_the_refusal_of_the_last_is_no_answer(answered: int) -> None:
    replayed = rejected("", LAST, Reason.REASON_REPLAYED, "met before")

    for said in permutations([replayed, accepted("c1", FIRST), *outcomes(FIRST)]):
        assert heard(*said, answered=answered).applied() == outcomes_of(said)


def outcomes_of(said: tuple[pb.CommandReceipt, ...]) -> list[pb.CommandReceipt]:
    ranks = [receipt for receipt in said if receipt.worker in WORKERS]
    return sorted(ranks, key=lambda receipt: receipt.worker)


@pytest.mark.parametrize("answered", range(4))
def test_the_last_entry_is_the_only_one_that_is_there(answered: int) -> None:
    said = [accepted("c1", LAST), *outcomes(LAST)]

    assert heard(*said, answered=answered).applied() == said[1:]


@pytest.mark.parametrize("answered", range(4))
def test_an_entry_that_was_lost_with_its_server_is_no_answer(answered: int) -> None:
    lost = rejected("c1", FIRST, Reason.REASON_CANCELLED, "lost with the history of Redis")

    answers = heard(lost, accepted("c1", LAST), *outcomes(LAST), answered=answered)

    assert len(answers.applied() or []) == 2


@pytest.mark.parametrize("answered", range(2))
@pytest.mark.parametrize("reason", [Reason.REASON_PAST_DEADLINE, Reason.REASON_ILLEGAL_TRANSITION])
def test_the_refusal_of_the_entry_that_was_let_in_is_the_answer(answered: int, reason: pb.ReasonCode) -> None:
    answers = heard(rejected("c1", FIRST, reason, "for good"), answered=answered)

    with pytest.raises(CommandFailedError, match="for good"):
        answers.accepted()


@pytest.mark.parametrize("answered", range(2))
def test_what_no_entry_of_it_can_mend_is_the_answer(answered: int) -> None:
    answers = heard(rejected("", LAST, Reason.REASON_UNKNOWN_KEY, "no key"), answered=answered)

    with pytest.raises(CommandFailedError, match="no key"):
        answers.accepted()


@pytest.mark.parametrize("answered", range(2))
@pytest.mark.parametrize("reason", [Reason.REASON_PAST_DEADLINE, Reason.REASON_STALE, Reason.REASON_FROM_THE_FUTURE])
def test_an_entry_that_was_refused_for_its_time_says_nothing_of_the_one_before(
    answered: int, reason: pb.ReasonCode
) -> None:
    late = rejected("", LAST, reason, "too late")

    assert heard(late, answered=answered).verdict is None
    with pytest.raises(CommandFailedError, match="too late"):
        heard(late, answered=answered, added_again=False).accepted()


@pytest.mark.parametrize("added_again", [False, True])
@pytest.mark.parametrize("answered", range(4))
def test_the_copy_of_somebody_else_changes_nothing(added_again: bool, answered: int) -> None:
    copies = [
        rejected("", COPY, Reason.REASON_REPLAYED, "a copy"),
        rejected("", COPY, Reason.REASON_BAD_SEAL, "forged"),
    ]
    named = rejected("c1", COPY, Reason.REASON_REPLAYED, "a copy")

    answers = heard(*copies, named, accepted("c1", LAST), answered=answered, added_again=added_again)

    assert answers.accepted() == accepted_in(answers)


def accepted_in(answers: Answers) -> pb.CommandReceipt:
    assert answers.verdict is not None
    assert (answers.verdict.entry_id, answers.verdict.status) == (LAST, pb.ReceiptStatus.RECEIPT_ACCEPTED)
    return answers.verdict


@pytest.mark.parametrize("answered", range(3))
def test_another_command_under_the_entry_id_of_this_one_has_its_own_answers(answered: int) -> None:
    said = [rejected("c2", LAST, Reason.REASON_CULLED, "another"), accepted("c2", LAST, step=9)]

    assert heard(*said, answered=answered).verdict is None


def test_of_a_command_that_was_added_once_only_its_entry_counts() -> None:
    elsewhere = rejected("c1", FIRST, Reason.REASON_CULLED, "of another entry")

    assert heard(elsewhere, answered=0, added_again=False).verdict is None
    assert heard(elsewhere, answered=1, added_again=False).verdict is None


class Away:
    """A server that loses so many replies, and the time that passes meanwhile."""

    def __init__(self, num_lost: int, *errors: type[BusError]) -> None:
        self.num_lost, self.errors, self.now_s = num_lost, errors or (LostError,), 100.0
        self.added: list[tuple[float, bytes]] = []

    async def add(self, stream: str, sealed: bytes) -> str:
        self.added.append((self.now_s, sealed))
        if len(self.added) <= self.num_lost:
            raise self.errors[min(len(self.added), len(self.errors)) - 1](f"{stream} is away")
        return f"{len(self.added)}-0"

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds

    async def until_answered(self, patience_s: float) -> Added:
        return await add_until_answered(
            self.add, "s", b"sealed", patience_s, clock=lambda: self.now_s, pause=self.pause
        )


async def test_the_same_bytes_are_added_until_a_reply_comes_and_it_says_so() -> None:
    once, thrice = Away(0), Away(2)

    assert await once.until_answered(30.0) == Added("1-0", again=False)
    assert await thrice.until_answered(30.0) == Added("3-0", again=True)
    assert [sealed for _, sealed in thrice.added] == [b"sealed"] * 3


async def test_after_its_patience_the_last_error_comes_out_and_nothing_is_tried_later() -> None:
    away = Away(10**6)

    with pytest.raises(LostError, match="s is away"):
        await away.until_answered(30.0)

    assert len(away.added) > 10
    assert all(at_s <= 130.0 for at_s, _ in away.added)


async def test_an_entry_that_may_be_there_is_not_said_to_be_missing() -> None:
    moved, full = Away(10**6, ReadOnlyError, LostError, ReadOnlyError), Away(10**6, OutOfMemoryError)

    with pytest.raises(LostError):
        await moved.until_answered(30.0)
    with pytest.raises(OutOfMemoryError):
        await full.until_answered(30.0)


async def test_without_patience_and_for_a_fault_that_does_not_pass_there_is_one_try() -> None:
    impatient, refused = Away(1), Away(1, BusError)

    for away, patience_s in ((impatient, 0.0), (refused, 30.0)):
        with pytest.raises(BusError):
            await away.until_answered(patience_s)

    assert len(impatient.added) == len(refused.added) == 1


async def test_nothing_is_added_again_after_the_deadline_of_the_command(run_id: str) -> None:
    keyring = MasterKeyring.new(NOW_NS).derive(run_id, [Role.CONTROLLER, Role.OPTIMIZER])
    endless, bounded = Away(1), Away(1)
    ways = [Dispatch(run_id, keyring, "c", away.add, lambda: NOW_NS, patience_s=30.0) for away in (endless, bounded)]
    command = commands.pause("", resume=False)

    assert await ways[0].send(command) == Added("2-0", again=True)
    with pytest.raises(LostError):
        await ways[1].send(command, timeout_ms=1)  # less than any pause

    assert len({sealed for _, sealed in endless.added}) == len(bounded.added) == 1


class Slow(Away):
    """The first answer takes longer than any patience."""

    async def add(self, stream: str, sealed: bytes) -> str:
        if not self.added:
            self.added.append((self.now_s, sealed))
            await asyncio.sleep(0)
            self.now_s += 40.0
            return "1-0"
        self.num_lost = 2
        return await super().add(stream, sealed)


async def test_what_waits_for_another_command_is_given_no_longer_for_it(run_id: str) -> None:
    keyring = MasterKeyring.new(NOW_NS).derive(run_id, [Role.CONTROLLER, Role.OPTIMIZER])
    slow, command, late = Slow(0), commands.pause("", resume=False), commands.pause("", resume=True)
    way = Dispatch(run_id, keyring, "c", slow.add, lambda: NOW_NS + int(slow.now_s * 1e9), patience_s=30.0)

    first, second = await asyncio.gather(way.send(command), way.send(late, timeout_ms=5_000), return_exceptions=True)

    deadline = unpack(slow.added[1][1]).header.deadline
    assert (first, type(second), len(slow.added)) == (Added("1-0", again=False), LostError, 2)
    assert deadline == NOW_NS + 105 * 10**9


async def test_a_command_whose_reply_is_cut_is_applied_once_and_said_to_be(run: ScriptedRun, redis_url: str) -> None:
    with Proxy(redis_url) as line:
        async with Controller.connect(run.run_id, redis_url=line.url, keyring=run.keyring) as controller:
            serving = asyncio.create_task(run.serve())
            line.cut_reply(b"XADD", 0)

            told = await (await controller.pause()).applied()
            await cancelled(serving)

    both = await bodies(run.redis, key(run.run_id, "commands"))
    assert line.done["reply_cut"] == 1
    assert len(both) == 2 and both[0] == both[1]
    assert [outcome.worker for outcome in told] == list(WORKERS)
