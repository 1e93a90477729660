"""What a run said beside its log, kept for its report: states at its epochs' ends, and what the global tier made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from esper.bus import connect, names, tail
from esper.bus.group.delivery import Row
from esper.errors import RefusedError
from esper.leyline.archive import Entry, LogLineError, decode_line, encode_line
from esper.leyline.durable import replacing
from esper.leyline.entries import entry_ms
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain
from esper.leyline.seal import Opened, Opener

SAID = "said.jsonl"
"""Below runs/<id>, beside the folder of the log."""
STREAMS = ("state", "global")
MOST = 1_000
"""Entries of each stream: of more, so many evenly over their time, as many as a plot can show."""
AT_ONCE = 100
"""Of those, in one round trip: a server may be far away."""


async def read_live(redis: connect.Redis, run_id: str, most: int = MOST) -> list[Entry]:
    """Of each stream all of it, or as much as is kept."""
    return [entry for name in STREAMS for entry in await spread(redis, run_id, name, most)]


async def spread(redis: connect.Redis, run_id: str, name: str, most: int = MOST) -> list[Entry]:
    """Of one stream; its ends are among them, where it holds more than that."""
    stream = names.key(run_id, name)
    length, oldest, newest = await redis.ask_all(
        [("XLEN", stream), ("XRANGE", stream, "-", "+", "COUNT", "1"), ("XREVRANGE", stream, "+", "-", "COUNT", "1")]
    )
    if int(length) <= most or not oldest or not newest:
        return _entries(name, await redis.ask(("XRANGE", stream, "-", "+", "COUNT", str(most))))
    first, last = (int(rows[0][0].partition(b"-")[0]) for rows in (oldest, newest))
    places = [first + (last - first) * number // (most - 1) for number in range(most - 1)]
    found: dict[str, Entry] = {}
    for start in range(0, len(places), AT_ONCE):
        asked = [("XRANGE", stream, str(since), "+", "COUNT", "1") for since in places[start : start + AT_ONCE]]
        rows = chain.from_iterable(await redis.ask_all(asked))
        found |= {entry.entry_id: entry for entry in _entries(name, rows)}
    found |= {entry.entry_id: entry for entry in _entries(name, newest)}
    return [*found.values()]


def _entries(name: str, rows: Iterable[Row]) -> list[Entry]:
    return [Entry(name, *tail.message(row)) for row in rows if row[1]]


def write(entries: Iterable[Entry], path: Path) -> None:
    """As a log has them. Raises OSError."""
    place(map(encode_line, entries), path)


def place(lines: Iterable[bytes], path: Path) -> None:
    """A whole file, or none, also where the disk is full. Raises OSError."""
    with replacing(path) as file:
        file.writelines(lines)


def read_file(path: Path) -> list[Entry]:
    """What a file holds, sealed as it was; empty where there is no file. Lines that are none are passed over."""
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        return list(chain.from_iterable(_line(raw, number) for number, raw in enumerate(file, 1)))


def _line(raw: bytes, number: int) -> Iterator[Entry]:
    try:
        line = decode_line(raw, number, STREAMS)
    except LogLineError:
        return
    if isinstance(line, Entry):
        yield line


def opened(entries: Iterable[Entry], keyring: RoleKeyring) -> Iterator[Opened]:
    """Those whose seal is right."""
    opener = Opener(keyring, guard=None, accept={Domain.STATE, Domain.AGGREGATE})
    for entry in entries:
        try:
            yield opener.open(entry.sealed, entry.entry_id, entry_ms(entry.entry_id))
        except RefusedError:
            continue
