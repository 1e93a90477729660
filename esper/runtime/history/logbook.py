"""A run's log in hand: read from a file, from the folder of a finished run, or from a live run and its archive."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import structlog

from esper.bus import connect, names, runs
from esper.bus.group.delivery import body_of
from esper.errors import EsperError, RefusedError, SettingError, UnknownRunError
from esper.leyline.archive import STREAMS, Entry, LogHeader, LogLineError, LogTrailer, decode_line, encode, encode_line
from esper.leyline.checks import FRESH_MS, MS_NS
from esper.leyline.entries import entry_order
from esper.leyline.envelope import unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener
from esper.runtime import access
from esper.runtime.history import report_store
from esper.runtime.printing import FULL

LOG, EXPORT, KEYRING = "log", "run.jsonl", "keyring.json"
"""Below runs/<id>: the folder of the log, its exported file, and the keyring that opens it."""
PAGE = 1_000
ROOM_S = 1.0
"""Between two looks whether a full disk has room."""
LOOKS = 30
"""After so many the log is written anew whatever is free by then: a quota is told by nothing but the attempt."""
DOMAINS = {
    "commands": Domain.COMMAND,
    "optimizer": Domain.OPTIMIZER,
    "decisions": Domain.DECISION,
    "receipts": Domain.RECEIPT,
    "emergency": Domain.EMERGENCY,
    "state": Domain.STATE,
}
"""By stream. `state` goes into no log, and is looked at beside it while a run lives."""

log = structlog.get_logger()


@dataclass
class Logbook:
    """Entries by stream, in the order in which they were read, and the lines that are none."""

    run_id: str = ""
    keys: tuple[str, ...] = ()
    streams: dict[str, list[Entry]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    flaws: list[str] = field(default_factory=list)
    live_at: str = ""
    """URL of the Redis that it was read from; empty: the run has ended, or it is a file."""

    @property
    def entries(self) -> Iterator[Entry]:
        """All, stream by stream."""
        for name in STREAMS:
            yield from self.streams[name]

    def sort(self) -> None:
        """Each stream by entry id, each id once: where archives overlap with what is not trimmed yet."""
        for name, entries in self.streams.items():
            once = {entry.entry_id: entry for entry in entries}
            self.streams[name] = sorted(once.values(), key=lambda entry: entry_order(entry.entry_id))

    def lines(self) -> Iterator[bytes]:
        """As an exported file has them."""
        return encode(LogHeader(self.run_id, self.keys), self.entries)


def read_file(path: Path) -> Logbook:
    """Every line that can be read; what is wrong with the others, and with the end, stands among the flaws."""
    book, digest, foot = Logbook(), sha256(), False
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if foot:
                    book.flaws.append(f"line {number} of the log: follows its last line")
                foot |= _take(book, raw, number, digest.hexdigest())
                digest.update(raw)
    except OSError as error:
        raise SettingError("log", str(path), f"a readable file ({error.strerror})") from error
    if book.run_id and book.keys != key_ids(book.entries):
        book.flaws.append("the first line of the log names other keys than those that have sealed its entries")
    if not book.run_id:
        book.flaws.append("the log has no first line with its run: it is no exported log, or its beginning was cut off")
    if not foot:
        book.flaws.append("the log has no last line with the number of its entries: it was cut short")
    return book


def _take(book: Logbook, raw: bytes, number: int, above: str) -> bool:
    """Note one line; True where it is the last one."""
    try:
        line = decode_line(raw, number)
    except LogLineError as error:
        book.flaws.append(str(error))
        return False
    if encode_line(line) != raw:
        book.flaws.append(f"line {number} of the log: says more than an exported one, or says it otherwise")
    match line:
        case LogHeader() if number > 1:
            book.flaws.append(f"line {number} of the log: is a first line")
        case LogHeader():
            book.run_id, book.keys = line.run_id, line.keys
        case Entry():
            book.streams[line.stream].append(line)
        case LogTrailer():
            if line != LogTrailer(sum(map(len, book.streams.values())), above):
                book.flaws.append(f"line {number} of the log: the lines above are not those that were exported")
            return True
    return False


def read_folder(folder: Path) -> Logbook:
    """The archive of what was trimmed, one file a stream. A last line that is being written is still in Redis, too."""
    book = Logbook()
    for path in sorted(folder.glob("*.jsonl")):
        for name, entries in read_file(path).streams.items() if path.name != EXPORT else ():
            book.streams[name] += entries
    return book


async def read_live(redis: connect.Redis, run_id: str, archive: Path | None = None) -> Logbook:
    """What the streams hold now, behind what was archived of them.

    The archive is read last: by then it has what is trimmed meanwhile.
    """
    book = Logbook(run_id)
    for name in STREAMS:
        since = "-"
        while rows := await redis.ask(("XRANGE", names.key(run_id, name), since, "+", "COUNT", str(PAGE))):
            book.streams[name] += [Entry(name, row[0].decode(), body_of(row[1])) for row in rows if row[1]]
            since = f"({rows[-1][0].decode()}"
    if archive is not None and archive.is_dir():
        for name, entries in read_folder(archive).streams.items():
            book.streams[name] += entries
    book.sort()
    book.keys = key_ids(book.entries)
    return book


def key_ids(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Ids, in hex, of the keys that the envelopes name."""
    found = set()
    for entry in entries:
        try:
            found.add(f"{unpack(entry.sealed).header.key_id:08x}")
        except RefusedError:
            continue
    return tuple(sorted(found))


def write(book: Logbook, path: Path) -> None:
    """A whole file, or none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report_store.place(book.lines(), path)


async def keep(redis_url: str, run_id: str, keyring: Path, folder: Path, hurried: asyncio.Event | None = None) -> bool:
    """At the end of a run whose Redis and keys go with it: leave its log, and the keyring that opens it; whether they
    are there.

    On a full disk: once there is room, which is waited for until `hurried`; None, or nothing was said: not at all.
    """
    try:
        async with connect.writer(redis_url) as redis:
            book = await read_live(redis, run_id, folder)
            spoken = await report_store.read_live(redis, run_id)
        await _leave(book, spoken, RoleKeyring.load(keyring), folder, hurried)
    except (EsperError, OSError) as error:  # the run has ended all the same
        log.warning("log.not_kept", run=run_id, why=str(error))
        return False
    return True


async def _leave(
    book: Logbook, spoken: Sequence[Entry], keys: RoleKeyring, folder: Path, hurried: asyncio.Event | None
) -> None:
    """All of it, on a full disk once there is room; OSError: it is not waited for, or no longer."""
    entries, is_told = [*book.entries, *spoken], False
    num_bytes = sum(len(entry.sealed) for entry in entries)
    while (full := left(book, spoken, keys, folder)) is not None:
        if hurried is None or hurried.is_set() or not entries:
            raise full
        if not is_told:
            log.warning("log.waits_for_room", run=book.run_id, folder=str(folder), why=str(full))
        is_told = True
        await until_room(folder, num_bytes, hurried)


async def until_room(folder: Path, num_bytes: int, hurried: asyncio.Event) -> None:
    """Look once in `ROOM_S`: each attempt takes of the others, too, what little is free, and a long one much time."""
    for _ in range(LOOKS):
        with suppress(TimeoutError):
            await asyncio.wait_for(hurried.wait(), ROOM_S)
        if hurried.is_set() or free_bytes(folder) >= num_bytes:
            return


def free_bytes(folder: Path) -> float:
    """What a file in it may grow by, quotas aside; where that can't be told, without end."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return math.inf
    return found.f_bavail * found.f_frsize


def left(book: Logbook, spoken: Sequence[Entry], keys: RoleKeyring, folder: Path) -> OSError | None:
    """None: all of it lies there, whole. Else for want of room it does not."""
    try:
        write(book, folder / EXPORT)
        report_store.write(spoken, folder.parent / report_store.SAID)
        keys.save(folder / KEYRING)
    except OSError as error:
        if error.errno in FULL:
            return error
        raise
    return None


async def find(run: str, runs_directory: Path, keyring: Path | None = None) -> tuple[Logbook, RoleKeyring | None]:
    """Of a file, of a finished run below `runs_directory`, or of a live run; and what opens it, if there is any."""
    run, runs_directory = called(run, runs_directory)
    if os.path.isfile(path := Path(run)):
        return _exported(path), _loaded(keyring, path.parent)
    if (folder := _ended(run, runs_directory)) is not None:
        return read_file(folder / EXPORT), _loaded(keyring, folder)
    try:
        found = await access.find(run, keyring=keyring, role=Role.OBSERVER)
    except UnknownRunError as error:
        expected = f"a file, a run below {runs_directory} or a live run ({error})"
        raise SettingError("run", run, expected) from error
    async with connect.writer(found.redis_url) as redis:
        book = await read_live(redis, found.run_id, runs_directory / found.run_id / LOG)
    book.live_at = found.redis_url
    return book, found.keyring


def called(run: str, runs_directory: Path) -> tuple[str, Path]:
    """A path to a run's folder is its id, and where that lies; what else there is stays as it is."""
    if os.sep not in run or not os.path.isdir(run):
        return run, runs_directory
    folder = Path(run).resolve()
    return folder.name, folder.parent


def _exported(path: Path) -> Logbook:
    """SettingError: nothing in the file is of a log, as where another file was meant."""
    book = read_file(path)
    if not book.run_id and not any(book.entries):
        raise SettingError("log", str(path), "an exported log; not one of its lines is of one")
    return book


async def beside(run: str, runs_directory: Path, keyring: Path | None = None) -> list[Entry]:
    """What the same run said beside its log: states and aggregates, sealed as they were, as many as were kept."""
    run, runs_directory = called(run, runs_directory)
    folder = path.parent if os.path.isfile(path := Path(run)) else _ended(run, runs_directory)
    if folder is not None:
        return report_store.read_file(folder.parent / report_store.SAID)
    found = await access.find(run, keyring=keyring, role=Role.OBSERVER)
    async with connect.writer(found.redis_url) as redis:
        return await report_store.read_live(redis, found.run_id)


def _ended(run: str, runs_directory: Path) -> Path | None:
    """The log's folder of the run of this id, or of the newest one of this name, that was kept whole.

    A name means the live run of that name wherever there is one here, as in every other command.
    """
    if any(run == record.name for record in runs.list_live()):
        return None
    found = [path.parent for path in runs_directory.glob(f"*/{LOG}/{EXPORT}") if _is_called(path.parent.parent, run)]
    return max(found, key=lambda folder: (folder / EXPORT).stat().st_mtime, default=None)


def _is_called(directory: Path, run: str) -> bool:
    return run in (directory.name, directory.name.rpartition("-")[0])


def _loaded(given: Path | None, folder: Path) -> RoleKeyring | None:
    """The one given, else the one beside the log, if there is any."""
    path = given or folder / KEYRING
    return RoleKeyring.load(path) if given or path.is_file() else None


@dataclass(frozen=True, slots=True)
class Read:
    """An entry, opened or refused."""

    entry: Entry
    opened: Opened | None
    refused: RefusedError | None = None


def opened(book: Logbook, keyring: RoleKeyring) -> dict[str, list[Read]]:
    """Every entry of each stream, opened as its readers did when it was fresh: seal, run, domain, age, ranges."""
    openers: dict[tuple[str, str], Opener] = {}
    return {name: [_read(entry, keyring, openers) for entry in found] for name, found in book.streams.items()}


def _read(entry: Entry, keyring: RoleKeyring, openers: dict[tuple[str, str], Opener]) -> Read:
    try:
        target = unpack(entry.sealed).header.target
        opener = openers.get((entry.stream, target))
        if opener is None:
            accept = [DOMAINS[entry.stream]]
            opener = Opener(keyring, name=target, guard=None, accept=accept, carries_out=True)
            openers[entry.stream, target] = opener
        return Read(entry, opener.open(entry.sealed, entry.entry_id, met_ms(entry)))
    except RefusedError as error:
        return Read(entry, None, error)


def met_ms(entry: Entry) -> int:
    """When its readers met it, as far as that can be told.

    Ids of a stream never go back. While the clock does that was set back, they count on within their last millisecond,
    and only the seal tells the time, by which readers went too. RefusedError for what is no envelope.
    """
    at_ms, count = entry_order(entry.entry_id)
    issued_ms = unpack(entry.sealed).header.issued_at_ns // MS_NS
    return issued_ms if count and at_ms - issued_ms > FRESH_MS else at_ms


def messages(reads: Sequence[Read]) -> Iterator[Opened]:
    """Those that opened."""
    return (read.opened for read in reads if read.opened is not None)
