"""The bus's Lua scripts as the model runs them: the same layout of keys and arguments, in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.simulation.model import Command, Model, RefusalError, Word, Words

BUS = Path(__file__).resolve().parents[2] / "esper" / "bus" / "group"


class Reader:
    """Takes arguments off one by one."""

    def __init__(self, keys: Words, argv: Words) -> None:
        self.keys, self.argv, self.at = keys, argv, 0

    def take(self) -> bytes:
        self.at += 1
        return self.argv[self.at - 1]

    def number(self) -> int:
        return int(self.take())

    def key(self) -> bytes:
        return self.keys[self.number() - 1]

    def times(self) -> range:
        return range(self.number())

    def list(self, length: int) -> list[bytes]:
        return [self.take() for _ in range(length)]


class Settle:
    """One run of settle.lua: every check first, then every write."""

    def __init__(self, model: Model, keys: Words, argv: Words) -> None:
        self.call, self.memory, self.read = model.call, keys[0], Reader(keys, argv)
        self.acks: list[tuple[bytes, bytes, list[bytes]]] = []
        self.seen: list[tuple[bytes, int, bytes]] = []
        self.repeats: list[bytes] = []

    def run(self) -> list[bytes]:
        token, seconds, seen_seconds = self.read.take(), self.read.take(), self.read.take()
        known = self.call("GET", self.memory)
        if known is not None and known.startswith(token):
            return [b"ok", *known[len(token) :].split()]
        if (objection := next(self.objections(), None)) is not None:
            return objection
        written = self.write()
        for name, first, mask in self.seen:
            self.call("SETRANGE", name, first, mask)
            self.call("EXPIRE", name, seen_seconds)
        for name, group, ids in self.acks:
            self.call("XACK", name, group, *ids)
        for _ in self.read.times():
            name, num = self.read.key(), self.read.number()
            self.call("XDEL", name, *self.read.list(num))
        self.call("SET", self.memory, token + b" ".join(written), "EX", seconds)
        return [b"ok", *written]

    def objections(self) -> Iterator[list[bytes]]:
        """What speaks against it, each part in the order of the arguments."""
        for _ in self.read.times():
            name, wanted = self.read.key(), self.read.take()
            found = self.call("TYPE", name)
            if found not in (b"none", wanted):
                yield [b"type", name, found, wanted]
        for _ in self.read.times():
            name, field, present, value = self.read.key(), *self.read.list(3)
            found = self.call("HGET", name, field)
            if (present == b"1" and found != value) or (present == b"0" and found is not None):
                yield [b"stale", name, field]
        for _ in self.read.times():
            name, group, consumer = self.read.key(), *self.read.list(2)
            ids = self.read.list(self.read.number())
            if (
                stale := next((each for each in ids if not self.is_pending(name, group, consumer, each)), None)
            ) is not None:
                yield [b"stale", name, stale]
            self.acks.append((name, group, ids))
        for number in self.read.times():
            self.look_for_repeats(number + 1)
        if self.repeats:
            yield [b"repeated", *self.repeats]

    def is_pending(self, name: bytes, group: bytes, consumer: bytes, entry_id: bytes) -> bool:
        try:
            return bool(self.call("XPENDING", name, group, entry_id, entry_id, 1, consumer))
        except RefusalError:
            return False

    def look_for_repeats(self, number: int) -> None:
        name, first, mask = self.read.key(), self.read.number(), self.read.take()
        found = self.call("GETRANGE", name, first, first + len(mask) - 1).ljust(len(mask), b"\0")
        both = [before & now for before, now in zip(found, mask, strict=True)]
        self.repeats += [b"%d %d %d" % (number, first + at, bits) for at, bits in enumerate(both) if bits]
        merged = bytes(before | now for before, now in zip(found, mask, strict=True))
        self.seen.append((name, first, merged))

    def write(self) -> list[bytes]:
        written = []
        for _ in self.read.times():
            name = self.read.key()
            written.append(self.call("XADD", name, "*", *self.read.list(2 * self.read.number())))
        for _ in self.read.times():
            name, flat = self.read.key(), self.read.list(2 * self.read.number())
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            kept: list[Word] = [part for field, value in fields.items() if value for part in (field, value)]
            gone = [field for field, value in fields.items() if not value]
            if kept:
                self.call("HSET", name, *kept)
            if gone:
                self.call("HDEL", name, *gone)
        return written


def settle(model: Model, keys: Words, argv: Words) -> list[bytes]:
    return Settle(model, keys, argv).run()


def release(model: Model, keys: Words, argv: Words) -> list[int]:
    """release.lua: what is pending goes to nobody, and the consumer goes too."""
    stream, (group, consumer, most), unread = keys[0], argv[:3], set(argv[3:])
    try:
        rows = model.call("XPENDING", stream, group, "-", "+", most, consumer)
    except RefusalError:
        return [0, 0]
    for entry_id, _, _, deliveries in rows:
        count = max(0, deliveries - (entry_id in unread))
        claim: list[Word] = ["TIME", 1, "RETRYCOUNT", count, "JUSTID"]
        model.call("XCLAIM", stream, group, "released", 0, entry_id, *claim)
    if model.call("XPENDING", stream, group, "-", "+", 1, consumer):
        return [len(rows), 1]
    model.call("XGROUP", "DELCONSUMER", stream, group, consumer)
    return [len(rows), 0]


Script = Callable[[Model, Words, Words], Any]
SOURCES: dict[bytes, Script] = {(BUS / "settle.lua").read_bytes(): settle, (BUS / "release.lua").read_bytes(): release}
NAMES = {hashlib.sha1(source).hexdigest().encode(): run for source, run in SOURCES.items()}


def evalsha(model: Model, words: Words) -> Any:
    if words[0] not in model.known:
        raise RefusalError("NOSCRIPT No matching script. Please use EVAL.")
    return _run(model, NAMES[words[0]], words)


def eval_(model: Model, words: Words) -> Any:
    model.known.add(hashlib.sha1(words[0]).hexdigest().encode())
    return _run(model, SOURCES[words[0]], words)


def _run(model: Model, script: Script, words: Words) -> Any:
    first = 2 + int(words[1])
    return script(model, words[2:first], words[first:])


COMMANDS: dict[bytes, Command] = {b"EVALSHA": evalsha, b"EVAL": eval_}
