"""What the run answers to one controller's commands: the rule of first verdicts, and the waiting for them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from esper.errors import BusError, CommandFailedError, UnansweredError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.field_checks import patience_s
from esper.leyline.kinds import Role
from esper.leyline.lifecycle import reason_name

_SPEAKERS = {
    pb.ReceiptStatus.RECEIPT_ACCEPTED: Role.COORDINATOR,
    pb.ReceiptStatus.RECEIPT_REJECTED: Role.COORDINATOR,
    pb.ReceiptStatus.RECEIPT_APPLIED: Role.WORKER,
    pb.ReceiptStatus.RECEIPT_FAILED: Role.WORKER,
}
_GONE = (
    pb.SeedLifecycleStage.SEED_STAGE_CULLED,
    pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED,
    pb.SeedLifecycleStage.SEED_STAGE_RESETTING,
)
_OF_THE_ENTRY = (pb.ReasonCode.REASON_REPLAYED, pb.ReasonCode.REASON_DUPLICATE, pb.ReasonCode.REASON_CANCELLED)
_OF_ITS_TIME = (pb.ReasonCode.REASON_STALE, pb.ReasonCode.REASON_FROM_THE_FUTURE, pb.ReasonCode.REASON_PAST_DEADLINE)
ROSTER_S = 0.5
_MOST_UNCLAIMED = 4_096  # receipts of other controllers, or that overtook the reply to our own XADD


class Answers:
    """The answers to one command. The coordinator's first verdict counts, and the first outcome of each rank.

    One that was added again, as a reply was lost, may lie in other entries than the one that is known, and any of them
    may be the one that is judged. What names the command answers it then, whichever entry it is about; a refusal that
    holds for one entry, as replayed or too late, is no answer, as another entry may have been let in.
    """

    def __init__(self, command_id: str, entry_id: str, *, added_again: bool = False) -> None:
        self.command_id, self.entry_id, self.added_again = command_id, entry_id, added_again
        self.verdict: pb.CommandReceipt | None = None
        self.outcomes: dict[str, pb.CommandReceipt] = {}

    def takes(self, receipt: pb.CommandReceipt) -> bool:
        """Whether it is an answer to this command. That to an envelope which was refused names only its entry."""
        is_here, is_named = receipt.entry_id == self.entry_id, receipt.command_id == self.command_id
        if not self.added_again:
            return is_here and (is_named or not receipt.command_id)
        if receipt.status == pb.ReceiptStatus.RECEIPT_REJECTED:
            of_one = _OF_THE_ENTRY if receipt.command_id else _OF_THE_ENTRY + _OF_ITS_TIME
            if receipt.reason in of_one:
                return False
        return is_named or (is_here and not receipt.command_id)

    def note(self, receipt: pb.CommandReceipt) -> None:
        """Take an answer in stream order; repeats and later verdicts change nothing."""
        if _SPEAKERS[receipt.status] is Role.COORDINATOR:
            self.verdict = self.verdict or receipt
        else:
            self.outcomes.setdefault(receipt.worker, receipt)

    @property
    def ended_the_seed(self) -> bool:
        """Whether a rank answered that the seed is gone, so far: trying again cannot help."""
        return any(receipt.stage in _GONE for receipt in self.outcomes.values())

    def accepted(self) -> pb.CommandReceipt | None:
        """The acceptance, or None while there is no verdict. Raises CommandFailedError when it was rejected."""
        if self.verdict is not None and self.verdict.status == pb.ReceiptStatus.RECEIPT_REJECTED:
            raise self._failure(self.verdict)
        return self.verdict

    def applied(self) -> list[pb.CommandReceipt] | None:
        """Every rank's receipt, by worker name, or None while one is missing. Raises for a rank that failed."""
        acceptance = self.accepted()
        for outcome in self.outcomes.values():
            if outcome.status == pb.ReceiptStatus.RECEIPT_FAILED:
                raise self._failure(outcome)
        if acceptance is None or len(self.outcomes) < max(1, acceptance.world_size):
            return None
        return [self.outcomes[worker] for worker in sorted(self.outcomes)]

    def _failure(self, receipt: pb.CommandReceipt) -> CommandFailedError:
        reason, detail, is_gone = reason_name(receipt.reason), receipt.detail, self.ended_the_seed
        return CommandFailedError(self.command_id, reason, detail, receipt.worker, ended_the_seed=is_gone)


class Ledger:
    """Sorts receipts to the commands they answer, by stream entry and by id. Knows nothing of Redis.

    A replayed or forged copy lies in another entry, so its refusal never touches the command that it imitates, also
    where its own sender has added that again: what was refused unopened names no command. Streams number their entries
    apart: of one millisecond both may have a command under the same entry id.
    """

    def __init__(self) -> None:
        self._claimed: WeakValueDictionary[tuple[str, str], Answers] = WeakValueDictionary()  # while someone holds them
        self._added_again: WeakValueDictionary[str, Answers] = WeakValueDictionary()  # of these, by id alone
        self._unclaimed: OrderedDict[str, list[pb.CommandReceipt]] = OrderedDict()
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self._unopened = ("", "")  # the newest: its entry, and why

    def claim(self, command_id: str, entry_id: str, *, added_again: bool = False) -> Answers:
        """From now on, and for what came already: the answers to this entry, or to all that hold the same bytes."""
        answers = self._claimed[entry_id, command_id] = Answers(command_id, entry_id, added_again=added_again)
        if added_again:
            self._added_again[command_id] = answers
        for each in [*self._unclaimed] if added_again else [entry_id]:
            self._hand_over(each, answers)
        return answers

    def note(self, receipt: pb.CommandReceipt, role: str) -> None:
        """Take a receipt that was opened and found good; one whose sealing role may not say so counts for nothing."""
        if _SPEAKERS.get(receipt.status) != role:
            return
        claims = self._claims(receipt)
        for answers in claims:
            answers.note(receipt)
        if not claims:
            self._unclaimed.setdefault(receipt.entry_id, []).append(receipt)
            if len(self._unclaimed) > _MOST_UNCLAIMED:
                self._unclaimed.popitem(last=False)
        self._wake()

    def unopened(self, entry_id: str, why: str) -> None:
        """An answer came that the keyring does not open. Anybody could have written it: it ends no waiting."""
        self._unopened = entry_id, why

    def unopened_since(self, entry_id: str) -> str:
        """Why the newest answer behind this entry was not opened; empty where each was."""
        at, why = self._unopened
        return why if entry_order(at) >= entry_order(entry_id) else ""

    def _hand_over(self, entry_id: str, answers: Answers) -> None:
        others = []
        for receipt in self._unclaimed.pop(entry_id, []):
            if answers.takes(receipt):
                answers.note(receipt)
            else:
                others.append(receipt)
        if others:
            self._unclaimed[entry_id] = others

    def _claims(self, receipt: pb.CommandReceipt) -> list[Answers]:
        """Whose answer it is: by entry and id, by the id alone, or by the entry where no command is named."""
        command_id = receipt.command_id
        if not command_id:
            return [each for each in [*self._claimed.values()] if each.takes(receipt)]
        found = self._claimed.get((receipt.entry_id, command_id)) or self._added_again.get(command_id)
        return [] if found is None or not found.takes(receipt) else [found]

    def close(self, reading: asyncio.Task[None]) -> None:
        """No receipt will come any more; everyone who waits, now or later, gets what ended the reading."""
        self._broken = None if reading.cancelled() else reading.exception()
        self._wake()

    async def change(self) -> None:
        """Return after the next receipt. Raises what ended the reading of them."""
        if self._broken is None:
            await self._changed.wait()
        if self._broken is not None:
            raise self._broken

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Receipt:
    """One published command, and the way to await what becomes of it."""

    def __init__(self, answers: Answers, ledger: Ledger, roster: Callable[[], Awaitable[list[str]]]) -> None:
        self._answers, self._ledger, self._roster = answers, ledger, roster

    @property
    def command_id(self) -> str:
        """What receipts and the run's log call the command."""
        return self._answers.command_id

    @property
    def entry_id(self) -> str:
        """Its entry in the stream that it was put on; of a command that was added again, the last one."""
        return self._answers.entry_id

    @property
    def outcomes(self) -> list[pb.CommandReceipt]:
        """What ranks have answered so far, applied or failed, by worker name."""
        return [receipt for _, receipt in sorted(self._answers.outcomes.items())]

    @property
    def ended_the_seed(self) -> bool:
        """Whether a rank answered that the seed is gone, so far: trying again cannot help."""
        return self._answers.ended_the_seed

    async def accepted(self, timeout_s: float = 30.0) -> pb.CommandReceipt:
        """The coordinator's, with the step of the effect. CommandFailedError if rejected, UnansweredError if late."""
        patience_s("timeout_s", timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while (acceptance := self._answers.accepted()) is None:
                    await self._ledger.change()
        except TimeoutError:
            raise self._unanswered(timeout_s, ["coordinator"]) from None
        return acceptance

    async def applied(self, timeout_s: float = 60.0) -> list[pb.CommandReceipt]:
        """The receipt of every rank. CommandFailedError with the reason of one that failed, UnansweredError if late."""
        patience_s("timeout_s", timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while (outcomes := self._answers.applied()) is None:
                    await self._ledger.change()
        except TimeoutError:
            raise self._unanswered(timeout_s, await self._missing()) from None
        return outcomes

    def _unanswered(self, timeout_s: float, missing: list[str]) -> UnansweredError:
        return UnansweredError(self.command_id, timeout_s, missing, self._ledger.unopened_since(self.entry_id))

    async def _missing(self) -> list[str]:
        acceptance = self._answers.accepted()
        if acceptance is None:
            return ["coordinator"]
        silent = [worker for worker in await self._known() if worker not in self._answers.outcomes]
        return silent or [f"{max(1, acceptance.world_size) - len(self._answers.outcomes)} workers not yet heard of"]

    async def _known(self) -> list[str]:
        """None, where Redis does not say by whom it was heard of: a silent one is not waited for any longer."""
        try:
            async with asyncio.timeout(ROSTER_S):
                return await self._roster()
        except (TimeoutError, BusError):
            return []
