"""A settlement as keys and arguments of the settle script; the script's head gives the order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from esper.bus.settlement import Settlement, Write

SOURCE = files("esper.bus").joinpath("settle.lua").read_bytes()
SHA = hashlib.sha1(SOURCE).hexdigest()
CHUNK = 1000  # Lua's unpack puts its items on a stack of about 8,000
REMEMBERED_S = 600  # longer than an outbox goes on trying

Argument: TypeAlias = bytes | str | int
Record: TypeAlias = Sequence[Argument]
T = TypeVar("T")


@dataclass(slots=True)
class Keys:
    """The keys that a call names, each once."""

    names: list[str]
    types: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, kind: str) -> int:
        """The key's place in KEYS, from 1."""
        if name not in self.types:
            self.types[name] = kind
            self.names.append(name)
        return self.names.index(name) + 1


def arguments(settlement: Settlement, memory: str, token: str) -> tuple[list[str], list[Argument]]:
    """KEYS and ARGV; `memory` is the key under which the script remembers the token."""
    keys = Keys([memory])
    parts = [
        expectations(settlement, keys),
        acks(settlement, keys),
        [entry(write, keys) for write in (*settlement.writes, *settlement.dead)],
        puts(settlement, keys),
    ]
    types = [(number, kind) for number, kind in enumerate(keys.types.values(), start=2)]
    return keys.names, [token, REMEMBERED_S, *counted(types), *chain.from_iterable(counted(part) for part in parts)]


def counted(records: Sequence[Record]) -> list[Argument]:
    """The number of records, then all of them in a row."""
    return [len(records), *chain.from_iterable(records)]


def expectations(settlement: Settlement, keys: Keys) -> list[Record]:
    """key field present value."""
    return [
        (keys.number(e.key, "hash"), e.field, int(e.value is not None), e.value or b"") for e in settlement.expectations
    ]


def acks(settlement: Settlement, keys: Keys) -> list[Record]:
    """key group consumer m id*m, ids in order."""
    return [
        (keys.number(stream, "stream"), group, consumer, len(chunk), *chunk)
        for (stream, group, consumer), ids in settlement.acks.items()
        for chunk in chunks(sorted(ids, key=id_order))
    ]


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


def pairs(fields: Mapping[str, bytes] | Mapping[bytes, bytes]) -> list[Argument]:
    """Their number, then each field before its value."""
    flat: list[Argument] = [len(fields)]
    for name, value in fields.items():
        flat += (name, value)
    return flat


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The same items, at most a thousand at a time."""
    left = iter(items)
    while chunk := list(islice(left, CHUNK)):
        yield chunk


def id_order(entry_id: str) -> tuple[int, int]:
    """Entry ids as the server orders them."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)
