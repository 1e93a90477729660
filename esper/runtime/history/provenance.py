"""Who signed what in a run, what became of it, and what was rejected of whom: from its log and its dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from google.protobuf.message import Message

from esper.bus.upkeep.dead import Letter
from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms, entry_order
from esper.leyline.envelope import unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.lifecycle import reason_name, short
from esper.leyline.seal import Opened, check_signature
from esper.runtime.history.logbook import Read
from esper.runtime.history.reissue import opened
from esper.runtime.watching.receipts import Answers

Proof = Literal["signed", "sealed", "unsigned", "claimed"]
"""Ed25519 by the one holder of a private key; HMAC by any holder of the role's key; neither though it should be the
first; nothing, as there is no key to check it with."""

Source: TypeAlias = tuple[str, bool]
"""Role and producer, and whether a key of the run shows it."""
Refusal: TypeAlias = tuple[str, str, str, Source]
"""Stream, entry id, reason, and whose it was."""

Answered: TypeAlias = Mapping[str, Mapping[str, Answers]]
"""By entry of the command, then by its id: streams number their entries apart, and two may use one number."""

Judged: TypeAlias = Mapping[tuple[int, str], pb.CommandReceipt]
"""Outcomes of requests, by round and seed."""

PROOFS: tuple[Proof, ...] = ("signed", "sealed", "unsigned", "claimed")
COMMANDS = ("commands", "optimizer")


@dataclass(frozen=True, slots=True)
class Deed:
    """One message: where it lies, who sealed it with which key, what it says, and how that was answered."""

    entry_id: str
    stream: str
    role: str
    producer: str
    key_id: str
    proof: Proof
    message: Message
    issued_by: str = ""
    command_id: str = ""
    verdict: str = ""
    applied: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    became: Mapping[str, str] = field(default_factory=dict)
    """Of a commit with requests of ranks: what came of each, by seed."""


@dataclass(slots=True)
class Signer:
    """One producer under one key: how many messages of which kind, between which entries."""

    role: str
    producer: str
    key_id: str
    kinds: Counter[str] = field(default_factory=Counter)
    first_ms: int = 0
    last_ms: int = 0


@dataclass(slots=True)
class Rejection:
    """What was refused for one reason, from one stream, of one source. `proven`: its key had sealed it; else whoever
    wrote it named that source, or none."""

    stream: str
    source: str
    proven: bool
    reason: str
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """All of a run since a moment."""

    deeds: Sequence[Deed]
    signers: Sequence[Signer]
    rejections: Sequence[Rejection]


def traced(
    reads: Mapping[str, Sequence[Read]], letters: Iterable[Letter], keyring: RoleKeyring | None, since: str = "0-0"
) -> Provenance:
    """Of entries that were opened, or peeked at where there are no secrets, and of dead letters, all behind `since`."""
    start = entry_order(since)
    met = {name: [read for read in found if entry_order(read.entry.entry_id) > start] for name, found in reads.items()}
    answers = answered(reads.get("receipts", ()))
    return Provenance(
        sorted(deeds(met, answers, keyring), key=lambda deed: entry_order(deed.entry_id)),
        signers(met),
        rejections(
            met, (letter for letter in letters if entry_order(whole(letter.origin_id)) > start), answers, keyring
        ),
    )


def deeds(reads: Mapping[str, Sequence[Read]], answers: Answered, keyring: RoleKeyring | None) -> Iterator[Deed]:
    """Commands, and decisions and emergencies; of the commits those that carry something."""
    judged = judged_by(reads.get("receipts", ()))
    for read in (read for name in (*COMMANDS, "decisions", "emergency") for read in reads.get(name, ())):
        if read.opened is None or not is_deed(read.opened):
            continue
        given = answers_to(read, answers) if read.entry.stream in COMMANDS else None
        done = deed(read.opened, read, given, keyring)
        message = read.opened.message
        yield replace(done, became=asked_for(message, judged)) if isinstance(message, pb.BarrierCommit) else done


def judged_by(receipts: Iterable[Read]) -> Judged:
    """What became of requests, by round and seed, as one rank tells of each; later ones repeat it."""
    found: dict[tuple[int, str], pb.CommandReceipt] = {}
    for read in receipts:
        message = read.opened.message if read.opened is not None else None
        if isinstance(message, pb.RunRecord):
            for outcome in message.judged.outcomes:  # the seed's id stands in place of a command's
                found.setdefault((message.judged.round, outcome.command_id), outcome)
    return found


def asked_for(commit: pb.BarrierCommit, judged: Judged) -> dict[str, str]:
    """What came of the requests of ranks and their policy that a commit let through, by seed."""
    return {each.seed_id: became(judged.get((commit.round, each.seed_id))) for each in commit.requests}


def became(outcome: pb.CommandReceipt | None) -> str:
    """The stage that the seed came to, or why it did not."""
    if outcome is None:
        return "unanswered"
    if outcome.status == pb.ReceiptStatus.RECEIPT_APPLIED:
        return f"now {short(outcome.stage)}" if outcome.stage else "applied"
    return f"failed ({': '.join(filter(None, (reason_name(outcome.reason), outcome.detail)))})"


def is_deed(found: Opened) -> bool:
    """Not a proposal, nor a round that changed nothing."""
    match found.message:
        case pb.BarrierProposal():
            return False
        case pb.BarrierCommit():
            said = found.message
            deviating = said.deviating or said.deviating_gradients or said.quarantined
            return bool(said.commands or said.requests or deviating)
    return True


def deed(found: Opened, read: Read, answers: Answers | None, keyring: RoleKeyring | None) -> Deed:
    """One of them."""
    header, message = found.header, found.message
    applied, failed = outcomes(answers)
    return Deed(
        entry_id=read.entry.entry_id,
        stream=read.entry.stream,
        role=header.role.value,
        producer=header.producer,
        key_id=f"{header.key_id:08x}",
        proof=proof_of(read, keyring),
        message=message,
        issued_by=message.issued_by if isinstance(message, pb.AdaptationCommand) else "",
        command_id=str(getattr(message, "command_id", "")),
        verdict=verdict(answers) if read.entry.stream in COMMANDS else "",
        applied=applied,
        failed=failed,
    )


def proof_of(read: Read, keyring: RoleKeyring | None) -> Proof:
    """What shows whose it is."""
    if keyring is not None and read.entry.stream == "commands":
        try:
            check_signature(read.entry.sealed, keyring)
        except RefusedError:
            return "unsigned"
        return "signed"
    return "sealed" if keyring is not None and keyring.roles else "claimed"


def answered(receipts: Iterable[Read]) -> Answered:
    """Of each verdict and outcome the first, as `await receipt.applied` takes them."""
    found: dict[str, dict[str, Answers]] = {}
    for read in receipts:
        message = read.opened.message if read.opened is not None else None
        if isinstance(message, pb.CommandReceipt) and read.opened is not None:
            known = found.setdefault(message.entry_id, {})
            answers = known.setdefault(message.command_id, Answers(message.command_id, message.entry_id))
            judges = message.status in (pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_REJECTED)
            if (read.opened.header.role is Role.COORDINATOR) is judges:
                answers.note(message)
    return found


def answers_to(read: Read, answers: Answered) -> Answers | None:
    """Those that name this command, else those that name its entry alone, as of an envelope that was refused."""
    known = answers.get(read.entry.entry_id, {})
    if read.opened is None:
        return next(iter(known.values()), None)
    return known.get(getattr(read.opened.message, "command_id", ""), known.get(""))


def verdict(answers: Answers | None) -> str:
    """What the coordinator made of it."""
    found = None if answers is None else answers.verdict
    if found is None:
        return "unanswered"
    if found.status == pb.ReceiptStatus.RECEIPT_ACCEPTED:
        return f"accepted before step {found.step}"
    return f"rejected ({reason_name(found.reason)})"


def outcomes(answers: Answers | None) -> tuple[dict[str, int], dict[str, str]]:
    """By worker, the step before which it was carried out, or the reason why it was not."""
    given = answers.outcomes if answers is not None else {}
    applied = {name: int(one.step) for name, one in given.items() if one.status == pb.ReceiptStatus.RECEIPT_APPLIED}
    return applied, {name: reason_name(one.reason) for name, one in given.items() if name not in applied}


def signers(reads: Mapping[str, Sequence[Read]]) -> list[Signer]:
    """Every producer and key, by role and name."""
    found: dict[tuple[str, str, str], Signer] = {}
    for read in (each for entries in reads.values() for each in entries):
        if read.opened is not None:
            header, at_ms = read.opened.header, entry_ms(read.entry.entry_id)
            who = (header.role.value, header.producer, f"{header.key_id:08x}")
            signer = found.setdefault(who, Signer(*who, first_ms=at_ms, last_ms=at_ms))
            signer.kinds[type(read.opened.message).__name__] += 1
            signer.first_ms, signer.last_ms = min(signer.first_ms, at_ms), max(signer.last_ms, at_ms)
    return [found[who] for who in sorted(found)]


def rejections(
    reads: Mapping[str, Sequence[Read]], letters: Iterable[Letter], answers: Answered, keyring: RoleKeyring | None
) -> list[Rejection]:
    """By source and reason, most first; an entry that several have refused for one reason counts once."""
    found: dict[tuple[str, str, bool, str], Rejection] = {}
    seen: set[tuple[str, str, str]] = set()
    log = {(read.entry.stream, read.entry.entry_id): read for entries in reads.values() for read in entries}
    for refusal in (*by_the_judge(reads, answers), *by_readers(letters, log, keyring)):
        stream, entry_id, reason, (source, proven) = refusal
        if (stream, entry_id, reason) not in seen:
            seen.add((stream, entry_id, reason))
            at_ms, row = entry_ms(entry_id), (stream, source, proven, reason)
            rejection = found.setdefault(row, Rejection(*row, first_ms=at_ms, last_ms=at_ms))
            rejection.count += 1
            rejection.first_ms, rejection.last_ms = min(rejection.first_ms, at_ms), max(rejection.last_ms, at_ms)
    return sorted(found.values(), key=lambda one: (-one.count, one.stream, one.source, one.reason))


def by_the_judge(reads: Mapping[str, Sequence[Read]], answers: Answered) -> Iterator[Refusal]:
    """Commands that the coordinator rejected, as its receipts say."""
    for name in COMMANDS:
        for read in reads.get(name, ()):
            given = answers_to(read, answers)
            if given is not None and given.verdict is not None and given.verdict.reason:
                yield name, read.entry.entry_id, reason_name(given.verdict.reason), source_of(read)


def by_readers(
    letters: Iterable[Letter], log: Mapping[tuple[str, str], Read], keyring: RoleKeyring | None
) -> Iterator[Refusal]:
    """What was set aside. Of what is still in the log the entry says whose it is, else the letter, as far as it can."""
    for letter in letters:
        read = log.get((letter.origin, letter.origin_id))
        source = source_of(read) if read is not None else (letter.source, is_proven(letter, keyring))
        yield letter.origin, whole(letter.origin_id), letter.text("reason"), source


def source_of(read: Read) -> Source:
    """Who an entry says has sealed it, and whether a key of the run shows that."""
    if read.opened is not None:
        header = read.opened.header
        return f"{header.role.value}/{header.producer}", True
    try:
        header = unpack(read.entry.sealed).header
    except RefusedError:
        return "", False
    return f"{header.role.value}/{header.producer}", not isinstance(read.refused, UnsealedError)


def is_proven(letter: Letter, keyring: RoleKeyring | None) -> bool:
    """Whether a key of the run has sealed what the letter holds."""
    if letter.kept is None or keyring is None:
        return False
    try:
        opened(letter, keyring, letter.made_ms)
    except UnsealedError:
        return False
    except RefusedError:  # sealed by a key of the run, and refused for another reason
        return True
    return True


def whole(entry_id: str) -> str:
    """With its second number, which a letter that anybody may have written need not have."""
    return entry_id if "-" in entry_id else f"{entry_id}-0"
