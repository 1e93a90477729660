"""Sequences of a log's producers: what is missing, and what is there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import Header, unpack
from esper.leyline.kinds import Role
from esper.leyline.lifecycle import reason_name
from esper.runtime.history.logbook import Read

WHOLE = (Role.CONTROLLER, Role.OPTIMIZER, Role.COORDINATOR)
"""All that these seal lies in the log, so that their sequences have no gaps; workers also seal what is not kept."""
RETRIED_MS = 60_000
UNPROVEN = {
    pb.ReasonCode.REASON_MALFORMED,
    pb.ReasonCode.REASON_UNKNOWN_KEY,
    pb.ReasonCode.REASON_BAD_SEAL,
    pb.ReasonCode.REASON_WRONG_CONTEXT,
}
"""Refused for one of these, it does not say whose it is."""

Producer: TypeAlias = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an untouched log of a sound run does not show; as a note, something that it may."""

    stream: str
    entry_id: str
    kind: str
    detail: str
    is_note: bool = False


@dataclass
class Sequences:
    """Which sequences of each producer were met, and where."""

    met: dict[Producer, dict[int, Read]] = field(default_factory=dict)
    again: list[tuple[Read, Read]] = field(default_factory=list)

    @classmethod
    def of(cls, reads: Mapping[str, Sequence[Read]]) -> Sequences:
        sequences = cls()
        found = [each for entries in reads.values() for each in entries]
        for read in found:
            if read.opened is not None:
                header = read.opened.header
                known = sequences.met.setdefault(producer_of(header), {}).setdefault(header.sequence, read)
                if known is not read:
                    sequences.again.append((known, read))
        for read, header in refused_though_sealed(found):
            sequences.met.setdefault(producer_of(header), {}).setdefault(header.sequence, read)
        return sequences

    def findings(self) -> Iterator[Finding]:
        """Repeats, then gaps."""
        for first, read in self.again:
            yield _repeat(first, read)
        for producer, met in self.met.items():
            if Role(producer[0]) in WHOLE:
                yield from _gaps(producer, met)


def unfounded(reads: Sequence[Read], repeats: Iterable[str]) -> Iterator[Finding]:
    """Entries that were refused as repeats of one that is not there; `repeats`: their ids, of all these streams."""
    num = Counter(read.entry.entry_id for read in reads)
    again = {entry_id for entry_id in repeats if num[entry_id] == 1}  # else it is not known which: streams number apart
    found = [(read, read.opened.header) for read in reads if read.opened is not None]
    found += refused_though_sealed(reads)
    firsts = {(producer_of(header), header.sequence) for read, header in found if read.entry.entry_id not in again}
    for read, header in found:
        if read.entry.entry_id in again and (producer_of(header), header.sequence) not in firsts:
            detail = f"refused as a repeat of sequence {header.sequence} of {header.producer}, which is nowhere else"
            yield Finding(read.entry.stream, read.entry.entry_id, "gap", detail)


def refused_though_sealed(reads: Iterable[Read]) -> Iterator[tuple[Read, Header]]:
    """What a key of the run has sealed, stale or out of range as it is: nothing is missing where it lies."""
    for read in reads:
        if read.refused is None or read.refused.reason in UNPROVEN:
            continue
        with suppress(RefusedError):
            yield read, unpack(read.entry.sealed).header


def producer_of(header: Header) -> Producer:
    """Whose sequences are contiguous."""
    return header.role.value, header.producer, header.incarnation, header.target


def _repeat(first: Read, read: Read) -> Finding:
    same = first.entry.sealed == read.entry.sealed
    kind = reason_name(pb.ReasonCode.REASON_REPLAYED if same else pb.ReasonCode.REASON_DUPLICATE)
    assert read.opened is not None
    header = read.opened.header
    detail = f"sequence {header.sequence} of {header.producer} was met as {first.entry.stream} {first.entry.entry_id}"
    apart_ms = entry_ms(read.entry.entry_id) - entry_ms(first.entry.entry_id)
    retried = header.role is Role.WORKER and first.entry.stream == read.entry.stream and apart_ms <= RETRIED_MS
    return Finding(read.entry.stream, read.entry.entry_id, kind, detail, is_note=retried)


def _gaps(producer: Producer, met: Mapping[int, Read]) -> Iterator[Finding]:
    """Told at the entry behind each gap. What was sealed and never arrived is a gap as well."""
    role, name, incarnation, _ = producer
    expected = 1
    for sequence in sorted(met):
        if sequence != expected:
            entry = met[sequence].entry
            who = f"{role} {name}, incarnation {incarnation:016x}"
            lost = f"{expected}" if sequence == expected + 1 else f"{expected} to {sequence - 1}"
            yield Finding(entry.stream, entry.entry_id, "gap", f"sequence {lost} of {who} is missing before it")
        expected = sequence + 1
