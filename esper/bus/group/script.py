"""The scripts, and a settlement as keys and arguments of the settle script, whose head gives the order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

from esper.bus.faults import NoScriptError
from esper.bus.group.settlement import NUM_SEEN, Settlement, Write
from esper.bus.protocol import Argument, Ask, Steps

CHUNK = 1000  # Lua's unpack puts its items on a stack of about 8,000
REMEMBERED_S = 600  # longer than an outbox goes on trying
SEEN_S = 86_400  # much longer than the entries of one message can lie apart, which is two minutes

Record: TypeAlias = Sequence[Argument]
T = TypeVar("T")


class Script(NamedTuple):
    """Lua, and the name that the server knows it by once it has run."""

    source: bytes
    sha: str


def load(name: str) -> Script:
    """A script that lies beside this file."""
    source = files("esper.bus.group").joinpath(name).read_bytes()
    return Script(source, hashlib.sha1(source).hexdigest())


SETTLE, RELEASE, ABSOLVE = load("settle.lua"), load("release.lua"), load("absolve.lua")


def call(script: Script, keys: Sequence[str], argv: Sequence[Argument]) -> Steps[Any]:
    """The script's reply; its source is sent only to a server that does not know it."""
    rest = (str(len(keys)), *keys, *argv)
    try:
        reply = yield Ask(("EVALSHA", script.sha, *rest))
    except NoScriptError:
        reply = yield Ask(("EVAL", script.source, *rest))
    return reply


@dataclass(slots=True)
class Keys:
    """The keys that a call names, each once."""

    names: list[str]
    types: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, kind: str) -> str:
        """The key's place in KEYS, from 1."""
        number = self.numbers.get(name)
        if number is None:
            self.types[name] = kind
            self.names.append(name)
            number = self.numbers[name] = str(len(self.names))
        return number


def arguments(settlement: Settlement, memory: str, token: str) -> tuple[list[str], list[Argument]]:
    """KEYS and ARGV; `memory` is the key under which the script remembers the token."""
    keys = Keys([memory])
    parts = [
        expectations(settlement, keys),
        acks(settlement, keys),
        onces(settlement, keys),
        [entry(write, keys) for write in (*settlement.writes, *settlement.dead)],
        puts(settlement, keys),
        drops(settlement, keys),
    ]
    types = [(str(number), kind) for number, kind in enumerate(keys.types.values(), start=2)]
    counted_parts = chain.from_iterable(counted(part) for part in parts)
    return keys.names, [token, str(REMEMBERED_S), str(SEEN_S), *counted(types), *counted_parts]


def counted(records: Sequence[Record]) -> list[Argument]:
    """The number of records, then all of them in a row."""
    return [str(len(records)), *chain.from_iterable(records)]


def expectations(settlement: Settlement, keys: Keys) -> list[Record]:
    """key field present value."""
    return [
        (keys.number(e.key, "hash"), e.field, "0" if e.value is None else "1", e.value or b"")
        for e in settlement.expectations
    ]


def acks(settlement: Settlement, keys: Keys) -> list[Record]:
    """key group consumer m id*m; fastest where ids are in order, as they were handed over."""
    return [
        (keys.number(stream, "stream"), group, consumer, str(len(chunk)), *chunk)
        for (stream, group, consumer), ids in settlement.acks.items()
        for chunk in chunks(ids)
    ]


def onces(settlement: Settlement, keys: Keys) -> list[Record]:
    """key first mask: bits of a string from a byte on."""
    return [
        (keys.number(f"{series}:{chunk}", "string"), *mask(offsets))
        for (series, chunk), offsets in settlement.effects.items()
    ]


def mask(offsets: set[int]) -> tuple[str, bytes]:
    """The first byte that holds one of these bits, and all from there to the last one."""
    first = min(offsets) >> 3
    packed = bytearray((max(offsets) >> 3) - first + 1)
    for offset in offsets:
        packed[(offset >> 3) - first] |= 1 << (offset & 7)
    return str(first), bytes(packed)


def repeated(settlement: Settlement, hits: Sequence[bytes]) -> set[tuple[str, int]]:
    """The messages that the script says took effect before, each hit being record, byte and bits."""
    chunks_by_record, found = list(settlement.effects), set[tuple[str, int]]()
    for hit in hits:
        record, byte, bits = (int(part) for part in hit.split())
        series, chunk = chunks_by_record[record - 1]
        first = chunk * NUM_SEEN + byte * 8
        found.update((series, first + bit) for bit in range(8) if bits >> bit & 1)
    return found


def entry(write: Write, keys: Keys) -> Record:
    """key m (field value)*m."""
    return (keys.number(write.stream, "stream"), *pairs(write.fields))


def puts(settlement: Settlement, keys: Keys) -> list[Record]:
    """key m (field value)*m."""
    return [
        (keys.number(name, "hash"), *pairs(dict(chunk)))
        for name, fields in settlement.puts.items()
        for chunk in chunks(fields.items())
    ]


def drops(settlement: Settlement, keys: Keys) -> list[Record]:
    """key m id*m."""
    return [
        (keys.number(stream, "stream"), str(len(chunk)), *chunk)
        for stream, ids in settlement.drops.items()
        for chunk in chunks(ids)
    ]


def pairs(fields: Mapping[str, bytes] | Mapping[bytes, bytes]) -> list[Argument]:
    """Their number, then each field before its value."""
    flat: list[Argument] = [str(len(fields))]
    for name, value in fields.items():
        flat += (name, value)
    return flat


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The same items, at most a thousand at a time."""
    left = iter(items)
    while chunk := list(islice(left, CHUNK)):
        yield chunk
