"""Checks a run's log: seals, signatures, order, gaps, and that commits, commands and receipts fit one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from google.protobuf.message import DecodeError

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.archive import Entry
from esper.leyline.checks import check_context, check_fresh
from esper.leyline.digest import barrier_digest
from esper.leyline.entries import entry_order
from esper.leyline.envelope import unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role, type_of
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Opened, check_signature
from esper.leyline.succession import Decision, Said, Succession
from esper.leyline.validate.messages import validate
from esper.runtime.history.logbook import DOMAINS, Logbook, Read, met_ms, opened
from esper.runtime.history.releases import other_release
from esper.runtime.history.sequences import Finding as Finding, Sequences, unfounded

COMMANDS = ("commands", "optimizer")
SIGNATURE = "signature"
VERDICTS = pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_REJECTED
_Reason = pb.ReasonCode
UNSEALED = {reason_name(reason) for reason in (_Reason.REASON_UNKNOWN_KEY, _Reason.REASON_BAD_SEAL)}
"""Who has refused a command for one of these has looked at nothing below; for one of those has found its seal good."""
SOONER = {
    reason_name(reason)
    for reason in (
        _Reason.REASON_STALE,
        _Reason.REASON_FROM_THE_FUTURE,
        _Reason.REASON_PAST_DEADLINE,
        _Reason.REASON_REPLAYED,
        _Reason.REASON_DUPLICATE,
    )
}
LATER = {
    reason_name(reason)
    for reason in (_Reason.REASON_MALFORMED, _Reason.REASON_WRONG_VERSION, _Reason.REASON_OUT_OF_RANGE)
}
"""Who has refused a command for one of SOONER has looked at none of LATER; nor at repeats, where it came too late."""


@dataclass
class Audit:
    """What was looked at, and what was found, stream by stream."""

    run_id: str
    num_entries: int = 0
    num_signatures: int = 0
    seals_checked: bool = True
    has_public_keys: bool = False
    release: str = ""
    """What is to be told of who has trained it; empty: this very code."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def take(self, found: Iterable[Finding]) -> None:
        for each in found:
            (self.notes if each.is_note else self.findings).append(each)


def audit(book: Logbook, keyring: RoleKeyring | None) -> Audit:
    """Every check. Without a keyring, or with one of public keys alone, seals go unchecked: then it says so."""
    sealed = keyring is not None and bool(keyring.roles)
    run_id = book.run_id or (keyring.run_id if keyring else "")
    num_entries, public = sum(map(len, book.streams.values())), keyring is not None and bool(keyring.public_keys)
    result = Audit(run_id, num_entries, seals_checked=sealed, has_public_keys=public)
    reads = opened(book, keyring) if sealed and keyring else {name: peeked(book, name) for name in book.streams}
    answers = Answers.of(reads["receipts"])
    result.take(Finding("log", "", "unreadable", flaw) for flaw in book.flaws)
    if keyring is not None and run_id != keyring.run_id:
        result.take([Finding("log", "", "run", f"the file says {run_id}, and its keys are of {keyring.run_id}")])
    result.take(misattributed(reads["receipts"]))
    for name, entries in reads.items():
        result.take(misordered(name, entries))
        result.take(answers.excused(refused(name, entries)))
    if keyring is not None:
        result.take(answers.excused(unsigned(reads["commands"], keyring)))
        result.num_signatures = sum(read.opened is not None for read in reads["commands"])
    result.take(answers.excused(Sequences.of(reads).findings()))
    result.take(unfounded([read for name in COMMANDS for read in reads[name]], answers.repeats()))
    result.take(Decisions(reads, answers).findings())
    result.release = other_release(reads)
    return result


def peeked(book: Logbook, name: str) -> list[Read]:
    """Entries taken apart and held against all rules but their seals."""
    return [_peek(entry, book.run_id) for entry in book.streams[name]]


def _peek(entry: Entry, run_id: str) -> Read:
    try:
        parts = unpack(entry.sealed)
        header = parts.header
        check_context(header, run_id or header.run_id, [DOMAINS[entry.stream]], {header.target})
        check_fresh(header, met_ms(entry))
        message = type_of(header.kind).FromString(entry.sealed[parts.body_start : parts.body_end])
        validate(message)
        return Read(entry, Opened(header, message, entry.sealed, entry.entry_id, False))
    except RefusedError as error:
        return Read(entry, None, error)
    except DecodeError:
        return Read(entry, None, RefusedError(pb.ReasonCode.REASON_MALFORMED, "its body can't be parsed"))


def misordered(name: str, reads: Sequence[Read]) -> Iterator[Finding]:
    """Entry ids of a stream only grow."""
    for before, read in pairwise(reads):
        if entry_order(read.entry.entry_id) <= entry_order(before.entry.entry_id):
            yield Finding(name, read.entry.entry_id, "order", f"follows {before.entry.entry_id}")


def refused(name: str, reads: Iterable[Read]) -> Iterator[Finding]:
    """What its reader would have refused."""
    for read in reads:
        if read.refused is not None:
            yield Finding(name, read.entry.entry_id, reason_name(read.refused.reason), read.refused.detail)


def unsigned(reads: Iterable[Read], keyring: RoleKeyring) -> Iterator[Finding]:
    """Commands without the controller's own signature."""
    for read in reads:
        if read.opened is None:
            continue
        try:
            check_signature(read.entry.sealed, keyring)
        except RefusedError as error:
            yield Finding("commands", read.entry.entry_id, SIGNATURE, error.detail)


def misattributed(receipts: Iterable[Read]) -> Iterator[Finding]:
    """What the coordinator alone says, or a worker alone, each under its own name, and another one has sealed."""
    for read in receipts:
        if read.opened is None:
            continue
        header, message = read.opened.header, read.opened.message
        is_verdict = isinstance(message, pb.CommandReceipt) and message.status in VERDICTS
        expected = (Role.COORDINATOR if is_verdict else Role.WORKER).value, getattr(message, "worker", "")
        if (header.role.value, header.producer) != expected:
            detail = f"{' '.join(expected)} is said to have said it; sealed by {header.role.value} {header.producer}"
            yield Finding("receipts", read.entry.entry_id, "role", detail)


@dataclass
class Answers:
    """What the coordinator answered, by entry of the command; acceptances by its id, too, as streams number entries
    apart from one another."""

    accepted: dict[str, dict[str, pb.CommandReceipt]] = field(default_factory=dict)
    rejected: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, receipts: Iterable[Read]) -> Answers:
        answers = cls()
        for read in receipts:
            if read.opened is None or read.opened.header.role is not Role.COORDINATOR:
                continue
            message = read.opened.message
            if isinstance(message, pb.CommandReceipt):
                if message.status == pb.ReceiptStatus.RECEIPT_ACCEPTED:
                    answers.accepted.setdefault(message.entry_id, {})[message.command_id] = message
                else:
                    answers.rejected.setdefault(message.entry_id, set()).add(message.reason)
        return answers

    def repeats(self) -> set[str]:
        """Entries that were refused for nothing but that they had been met before."""
        return {
            entry_id
            for entry_id, reasons in self.rejected.items()
            if reasons <= {_Reason.REASON_REPLAYED, _Reason.REASON_DUPLICATE} and entry_id not in self.accepted
        }

    def excused(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """A command that was refused for the very same reason when it came is part of a sound log."""
        for each in findings:
            reasons = {reason_name(reason) for reason in self.rejected.get(each.entry_id, ())}
            if reasons:
                reasons.add(SIGNATURE)  # at which nobody looked, nor needs to: it had no effect
            if reasons & UNSEALED:
                reasons |= UNSEALED | SOONER
            if reasons & SOONER:
                reasons |= SOONER | LATER
            if each.stream in COMMANDS and each.kind in reasons:
                yield Finding(each.stream, each.entry_id, each.kind, f"refused then, too: {each.detail}", is_note=True)
            else:
                yield each


class Decisions:
    """Rounds in their order, commits held against the commands that they name and the receipts that tell of them."""

    def __init__(self, reads: Mapping[str, Sequence[Read]], answers: Answers) -> None:
        self._decisions = [read.opened for read in reads["decisions"] if read.opened is not None]
        self._commands = {
            (name, read.entry.entry_id): read.opened for name in COMMANDS for read in reads[name] if read.opened
        }
        self._answers = answers
        self._proposed: dict[int, int] = {}
        self._decided: dict[int, pb.BarrierCommit | pb.BarrierAbort] = {}
        self._generation, self._step, self._newest = 0, 0, 0
        self._named: set[str] = set()
        self._succession = Succession()

    def findings(self) -> Iterator[Finding]:
        for one in self._decisions:
            message = one.message
            if not isinstance(message, Said):
                continue
            if not self._succession.holds(message):
                detail = f"said under lease token {message.lease_token}, after {self._succession.token} was announced"
                yield Finding("decisions", one.entry_id, "void", detail, is_note=True)
            elif not isinstance(message, pb.LeaderAnnouncement):
                for kind, detail in self._flaws(message):
                    yield Finding("decisions", one.entry_id, kind, detail, is_note=kind == "repeated")
        for entry_id, said in self._answers.accepted.items():
            for receipt in said.values() if entry_id not in self._named else ():
                detail = f"{receipt.command_id} was accepted in round {receipt.round}, whose commit does not name it"
                yield Finding("receipts", entry_id, "commit", detail)

    def _flaws(self, message: Decision) -> Iterator[tuple[str, str]]:
        if message.roster_generation < self._generation:
            yield "generation", f"round {message.round} is of generation {message.roster_generation}, a past one"
            return
        began_anew = message.roster_generation > self._generation
        self._generation = message.roster_generation
        if isinstance(message, pb.BarrierProposal):
            yield from self._of_proposal(message, began_anew)
        elif (known := self._decided.get(message.round)) is not None:
            same = known == message
            yield "repeated" if same else "decision", f"round {message.round} was decided before"
        else:
            self._decided[message.round] = message
            if self._proposed.get(message.round) != message.roster_generation:
                yield "decision", f"round {message.round} of generation {message.roster_generation} was never proposed"
            if isinstance(message, pb.BarrierCommit):
                yield from self._of_commit(message)

    def _of_proposal(self, proposal: pb.BarrierProposal, began_anew: bool) -> Iterator[tuple[str, str]]:
        if proposal.round != self._newest + 1 and not (began_anew and proposal.round > self._newest):
            yield "round", f"round {proposal.round} follows round {self._newest}"
        if began_anew:
            self._step = 0
        self._newest = proposal.round
        self._proposed[proposal.round] = proposal.roster_generation

    def _of_commit(self, commit: pb.BarrierCommit) -> Iterator[tuple[str, str]]:
        if barrier_digest(commit.effective_step, commit.commands, commit.requests) != commit.digest:
            yield "digest", f"round {commit.round}: the digest does not cover its step, commands and requests"
        if commit.effective_step < self._step:
            yield "step", f"round {commit.round} takes effect at step {commit.effective_step}, before {self._step}"
        self._step = max(self._step, commit.effective_step)
        for ref in commit.commands:
            self._named.add(ref.entry_id)
            yield from self._of_ref(commit, ref)

    def _of_ref(self, commit: pb.BarrierCommit, ref: pb.CommittedCommand) -> Iterator[tuple[str, str]]:
        found = self._commands.get((ref.stream, ref.entry_id))
        what = f"round {commit.round} names {ref.command_id}, entry {ref.entry_id} of {ref.stream}"
        if found is None:
            yield "commit", f"{what}, which is not there or does not open"
        elif found.digest != ref.envelope_digest:
            yield "commit", f"{what}, which has other bytes"
        elif getattr(found.message, "command_id", "") != ref.command_id:
            yield "commit", f"{what}, which is another command"
        said = self._answers.accepted.get(ref.entry_id, {})
        receipt = said.get(ref.command_id, next(iter(said.values()), None))
        if receipt is None:
            yield "receipt", f"{what}, of whose acceptance there is no receipt"
        elif (receipt.round, receipt.step) != (commit.round, commit.effective_step):
            yield "receipt", f"{what}, accepted for round {receipt.round}, step {receipt.step}"
