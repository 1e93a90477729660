"""A model of Redis Streams, in memory and without a clock of its own: the commands that the bus uses, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from tests.simulation.stream import Group, Id, Stream, first_of, last_of, pack, parse

Word: TypeAlias = bytes | str | int
Words: TypeAlias = Sequence[bytes]
Hash: TypeAlias = dict[bytes, bytes]
Text: TypeAlias = tuple[bytes, int | None]  # the value, and when it ends, in ms
Value: TypeAlias = Stream | Hash | Text
V = TypeVar("V", Stream, dict[bytes, bytes], tuple[bytes, int | None])

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
TYPES: dict[type[Value], bytes] = {Stream: b"stream", dict: b"hash", tuple: b"string"}


class RefusalError(Exception):
    """What the server answers with a minus before it."""


class Keyspace:
    """What is stored, by key. Strings end in time; all else stays until it is deleted."""

    def __init__(self, clock: Callable[[], int], entry_clock: Callable[[], int] | None = None) -> None:
        self.values: dict[bytes, Value] = {}
        self.now_ms, self.entry_ms = clock, entry_clock or clock

    def find(self, key: bytes, kind: type[V]) -> V | None:
        """The value of a key, if there is one. Raises where it is of another kind."""
        value = self.values.get(key)
        if isinstance(value, tuple) and value[1] is not None and self.now_ms() >= value[1]:
            del self.values[key]
            return None
        if value is not None and not isinstance(value, kind):
            raise RefusalError(WRONG_TYPE)
        return value

    def type_of(self, key: bytes) -> bytes:
        value = self.values.get(key)
        if isinstance(value, tuple):
            value = self.find(key, tuple)
        return b"none" if value is None else TYPES[type(value)]

    def stream(self, key: bytes) -> Stream:
        """The stream, made where there is none."""
        found = self.find(key, Stream)
        if found is None:
            found = self.values[key] = Stream()
        return found

    def group(self, key: bytes, name: bytes, verb: str = "") -> tuple[Stream, Group]:
        stream = self.find(key, Stream)
        if stream is None or name not in stream.groups:
            where = " in XREADGROUP with GROUP option" if verb == "XREADGROUP" else ""
            raise RefusalError(f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'{where}")
        return stream, stream.groups[name]

    def add(self, key: bytes, fields: Words) -> bytes:
        """XADD with an id of the server's."""
        stream = self.stream(key)
        at = stream.next_id(self.entry_ms())
        stream.add(at, tuple(fields))
        return pack(at)


class Model:
    """A server. Its replies have the shapes of RESP2; a refusal is raised."""

    def __init__(
        self,
        commands: Mapping[bytes, Command],
        version: tuple[int, int],
        clock: Callable[[], int],
        entry_clock: Callable[[], int] | None = None,
    ) -> None:
        self.keys, self.version = Keyspace(clock, entry_clock), version
        self.known: set[bytes] = set()  # scripts, by their digest
        self._commands = commands

    def call(self, *words: Word) -> Any:
        """Carry out one command."""
        packed = [word if type(word) is bytes else str(word).encode() for word in words]
        return self._commands[packed[0].upper()](self, packed[1:])

    def snapshot(self) -> dict[bytes, Value]:
        """All that is stored, as of now."""
        return copied(self.keys.values)

    def restore(self, snapshot: dict[bytes, Value]) -> None:
        """Fall back: what a server holds that lost its newest writes. Scripts it learns anew."""
        self.keys.values = copied(snapshot)
        self.known.clear()


Command: TypeAlias = Callable[[Model, Words], Any]


def copied(values: Mapping[bytes, Value]) -> dict[bytes, Value]:
    """Shares with what it was made of only what never changes."""
    return {key: value if isinstance(value, tuple) else value.copy() for key, value in values.items()}


def option(words: Words, name: bytes, default: int) -> int:
    """The number behind a word, which is in capitals here."""
    return int(words[words.index(name) + 1]) if name in words else default


def flag(words: Words, name: bytes) -> bool:
    return name in words


def entry(stream: Stream, at: Id) -> list[Any] | None:
    """An entry as it is sent; None: it was deleted."""
    fields = stream.entries.get(at)
    return None if fields is None else [pack(at), list(fields)]


def entries(stream: Stream, words: Words, *, backwards: bool = False) -> list[Any]:
    """The reply of XRANGE and XREVRANGE; `words` are the two ends and what follows."""
    low, high = (words[1], words[0]) if backwards else (words[0], words[1])
    found = stream.between(first_of(low), last_of(high))
    count = option(words[2:], b"COUNT", len(found))
    return [entry(stream, at) for at in (found[::-1] if backwards else found)[:count]]


def explicit(stream: Stream, text: bytes) -> Id:
    """The id that an XADD asks for. Raises where it is not above the newest."""
    at = parse(text)
    if at <= stream.last:
        raise RefusalError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    return at
