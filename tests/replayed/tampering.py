"""What may be done to an exported log on its way, and whether `esper verify` names it and `esper diff` where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from esper.leyline.archive import Entry
from esper.leyline.envelope import unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.history import logbook
from esper.runtime.history.audit import audit
from esper.runtime.history.decision_diff import divergence, history
from esper.runtime.history.logbook import Logbook
from tests.garden.wrong import require

WHOLE = (Role.CONTROLLER, Role.OPTIMIZER, Role.COORDINATOR)


def found_out(path: Path, keyring: RoleKeyring, dice: Random) -> None:
    """Wrong where a change of the file goes unnoticed: by who can't write its last line anew, and by who can."""
    lines = path.read_bytes().splitlines(keepends=True)
    for change in (flip, drop, double, swap, cut):
        changed = path.with_name(f"{change.__name__}.jsonl")
        changed.write_bytes(b"".join(change([*lines], dice)))
        require(audit(logbook.read_file(changed), keyring).findings, f"{change.__name__} goes unnoticed")
    book = logbook.read_file(path)
    for edit in (spoilt, without, twice):
        if (entry := followed(book, dice)) is not None:
            logbook.write(edited(book, entry, edit), path.with_name("edited.jsonl"))
            findings = audit(logbook.read_file(path.with_name("edited.jsonl")), keyring).findings
            require(findings, f"{edit.__name__} goes unnoticed: {entry.stream} {entry.entry_id}")
    parts(book, keyring, dice)


def flip(lines: list[bytes], dice: Random) -> list[bytes]:
    at = dice.randrange(len(lines))
    line = bytearray(lines[at])
    line[dice.randrange(len(line) - 1)] ^= 1 << dice.randrange(7)
    return [*lines[:at], bytes(line), *lines[at + 1 :]]


def drop(lines: list[bytes], dice: Random) -> list[bytes]:
    del lines[dice.randrange(len(lines))]
    return lines


def double(lines: list[bytes], dice: Random) -> list[bytes]:
    at = dice.randrange(len(lines))
    return [*lines[:at], lines[at], *lines[at:]]


def swap(lines: list[bytes], dice: Random) -> list[bytes]:
    at = dice.randrange(1, len(lines))
    return [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]


def cut(lines: list[bytes], dice: Random) -> list[bytes]:
    whole = b"".join(lines)
    return [whole[: dice.randrange(len(whole))]]


def spoilt(entry: Entry) -> list[Entry]:
    middle = len(entry.sealed) // 2
    return [
        entry._replace(sealed=entry.sealed[:middle] + bytes([entry.sealed[middle] ^ 4]) + entry.sealed[middle + 1 :])
    ]


def without(entry: Entry) -> list[Entry]:
    return []


def twice(entry: Entry) -> list[Entry]:
    ms, _, count = entry.entry_id.partition("-")
    return [entry, entry._replace(entry_id=f"{ms}-{int(count) + 1_000}")]


def edited(book: Logbook, entry: Entry, edit: Callable[[Entry], list[Entry]]) -> Logbook:
    streams = {name: [*entries] for name, entries in book.streams.items()}
    at = streams[entry.stream].index(entry)
    streams[entry.stream][at : at + 1] = edit(entry)
    made = replace(book, streams=streams, flaws=[])
    made.sort()
    return made


def followed(book: Logbook, dice: Random) -> Entry | None:
    """One behind which its producer, who has sealed nothing but what is in the log, has sealed more."""
    newest: dict[tuple[str, int], int] = {}
    known = []
    for entry in book.entries:
        header = unpack(entry.sealed).header
        if header.role in WHOLE:
            who = header.role.value, header.incarnation
            newest[who] = max(newest.get(who, 0), header.sequence)
            known.append((who, header.sequence, entry))
    times = Counter(entry.sealed for _, _, entry in known)  # of two that are the same, one may go: it was refused
    fit = [entry for who, sequence, entry in known if sequence < newest[who] and times[entry.sealed] == 1]
    return dice.choice(fit) if fit else None


def parts(book: Logbook, keyring: RoleKeyring, dice: Random) -> None:
    """A run parts from one that lacks a commit at the first thing that this has decided, and not from itself."""
    whole = list(history(logbook.opened(book, keyring)))
    require(divergence(whole, whole) is None, "it parts from itself")
    decided = sorted({each.round for each in whole if each.round})
    if not decided:
        return
    gone = dice.choice(decided)
    reads = logbook.opened(book, keyring)
    reads["decisions"] = [
        read for read in reads["decisions"] if read.opened is None or getattr(read.opened.message, "round", 0) != gone
    ]
    first = next(at for at, each in enumerate(whole) if each.round == gone)
    found = divergence(whole, history(reads))
    require(found is not None and first <= found.common, f"without round {gone} it parts elsewhere: {found}")
