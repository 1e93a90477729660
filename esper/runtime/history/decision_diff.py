"""Where the decisions of two runs part: what took effect before which step, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat, zip_longest
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.lifecycle import gate_name, reason_name, short
from esper.leyline.succession import Said, Succession, in_force
from esper.runtime.history.logbook import Read, messages

OWN = ("version", "command_id", "issued_by", "annotations", "priority", "timeout_ms")
"""Fields of a command that say whose it is and not what it does."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One thing that was decided. Two runs agree where all but the round's number is the same."""

    round: int
    step: int
    what: str
    verdict: str
    command: Message | None = field(default=None, compare=False)  # of which `what` says all

    @property
    def content(self) -> tuple[int, str, str]:
        return self.step, self.what, self.verdict

    def row(self) -> dict[str, Any]:
        return {"round": self.round, "step": self.step, "what": self.what, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two runs differ; None: one of them has ended there. `common`: how many are alike before."""

    common: int
    one: Decided | None
    other: Decided | None

    @property
    def differs_in(self) -> str:
        """Which of the two's parts are not alike."""
        if self.one is None or self.other is None:
            return "length"
        names = ("step", "command", "verdict")
        pairs = zip(names, self.one.content, self.other.content, strict=True)
        return next(name for name, one, other in pairs if one != other)

    def row(self) -> dict[str, Any]:
        both = {"one": self.one, "other": self.other}
        told = {name: None if one is None else one.row() for name, one in both.items()}
        return {"equal": False, "common": self.common, "differs_in": self.differs_in} | told


def divergence(one: Iterable[Decided], other: Iterable[Decided]) -> Divergence | None:
    """None: they are alike from the first to the last."""
    for number, (left, right) in enumerate(zip_longest(one, other)):
        if left is None or right is None or left.content != right.content:
            return Divergence(number, left, right)
    return None


def history(reads: Mapping[str, Sequence[Read]]) -> Iterator[Decided]:
    """All that was decided, in the order of its effect, and last what each rank came to."""
    commands = {(name, each.entry_id): each.message for name in ("commands", "optimizer") for each in _of(reads, name)}
    verdicts, judged, ended = _answers(reads)
    said = (opened.message for opened in _of(reads, "decisions") if isinstance(opened.message, Said))
    for commit in in_force(said, Succession()):
        if not isinstance(commit, pb.BarrierCommit):
            continue
        decided = partial(Decided, commit.round, commit.effective_step)
        for ref in commit.commands:
            verdict = ", ".join(sorted(verdicts.get(ref.entry_id, {"unanswered"})))
            command = commands.get((ref.stream, ref.entry_id))
            yield decided(described(command), verdict, command)
        outcomes = chain(judged.get(commit.round, ()), repeat(None))
        for request, outcome in zip(commit.requests, outcomes, strict=False):
            what = f"request {pb.SeedOperation.Name(request.operation)} {request.seed_id}"
            yield decided(what, "unanswered" if outcome is None else worded(outcome))
        if commit.snapshot:
            yield decided("snapshot", "taken")
    for rank, record in sorted(ended.items()):
        report = record.report
        own = f", parts {report.part_digest.hex()[:16]}" if report.part_digest else ""
        yield Decided(0, report.steps, f"rank {rank} ends", f"parameters {report.parameter_digest.hex()[:16]}{own}")


def described(command: object) -> str:
    """What a command does, without whose it is."""
    if not isinstance(command, pb.AdaptationCommand | pb.OptimizerCommand):
        return "a command that is not in the log"
    content = MessageToDict(command, preserving_proto_field_name=True)
    kind = str(content.pop("command_type", ""))
    for name in OWN:
        content.pop(name, None)
    return " ".join([kind, *(f"{name}={value}" for name, value in sorted(_flat(content)))])


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield name, value


def worded(receipt: pb.CommandReceipt) -> str:
    """A verdict without its figures, which may differ where all else is alike."""
    if receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED:
        return f"applied, {short(receipt.stage)}" if receipt.stage else "applied"
    gate = f" at {gate_name(receipt.gate)}" if receipt.gate else ""
    return f"failed{gate}: {reason_name(receipt.reason)}"


def _answers(
    reads: Mapping[str, Sequence[Read]],
) -> tuple[dict[str, set[str]], dict[int, Sequence[pb.CommandReceipt]], dict[int, pb.RunEnded]]:
    """Verdicts by entry, outcomes of requests by round, ends by rank."""
    verdicts: dict[str, set[str]] = {}
    judged: dict[int, Sequence[pb.CommandReceipt]] = {}
    ended: dict[int, pb.RunEnded] = {}
    for opened in _of(reads, "receipts"):
        match opened.message:
            case pb.CommandReceipt() as receipt if opened.header.role is Role.WORKER:
                verdicts.setdefault(receipt.entry_id, set()).add(worded(receipt))
            case pb.RunRecord() as record if record.HasField("judged"):
                judged.setdefault(record.judged.round, record.judged.outcomes)
            case pb.RunRecord() as record if record.HasField("ended"):
                ended[record.rank] = record.ended
    return verdicts, judged, ended


def _of(reads: Mapping[str, Sequence[Read]], name: str) -> Iterator[Any]:
    return messages(reads[name])
