"""The few checks that every rule on messages is made of. Each names the field, the value met and what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cache
from typing import TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from esper.errors import RefusedError, spelt
from esper.leyline import contracts as pb

ID_BYTES = 64
NAME_BYTES = 255
SENTENCE_BYTES = 4096
MOST_SHOWN = 64
"""Characters of a value that is refused: the sentence goes to logs, letters and screens."""
ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
NUM_SEEDS = 1024
NUM_NUMBERS = 64
NUM_EVENTS = 32
"""Of one packet, or of one aggregate."""
PROMISE_STEPS = 8
"""A vote at step s promises not to begin step s + 8 before the decision, which takes effect then at the earliest."""
SHORT_ID, SHORT_NAME = ID_BYTES // 4, NAME_BYTES // 4
"""So many characters fit whatever they are: none takes more than four bytes. Rules of what comes by the thousand begin
with that comparison and read each field once; only what is odd goes on to the functions here."""

VERSION = 1

T = TypeVar("T")


def version(message: Message) -> None:
    """Every message that travels alone has the field `version`, and it says 1."""
    met = getattr(message, "version")  # noqa: B009 - the base class of messages has no such field
    if met != VERSION:
        name = message.DESCRIPTOR.name
        raise RefusedError(pb.ReasonCode.REASON_WRONG_VERSION, f"{name}.version is {met}; expected {VERSION}")


def refuse(field: str, met: object, expected: str) -> RefusedError:
    """The error for a value that can't be meant, of which it names no more than a line holds."""
    said = spelt(met)
    shown = said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}..."
    return RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, f"{field} is {shown}; expected {expected}")


def text(field: str, value: str, most_bytes: int = ID_BYTES) -> None:
    """A string that may be empty."""
    if len(value) * 4 <= most_bytes:  # no character takes more than four: most names end here
        return
    length = len(value.encode())
    if length > most_bytes:
        raise refuse(field, value, f"at most {most_bytes} bytes, not {length}")


def name(field: str, value: str, most_bytes: int = ID_BYTES) -> None:
    """A string that must be there."""
    if not value:
        raise refuse(field, value, "a name")
    text(field, value, most_bytes)


def entry_id(field: str, value: str) -> None:
    """Where an entry lies in a stream: two numbers of 64 bits, as the server gives them out."""
    if not ENTRY_ID.fullmatch(value):
        raise refuse(field, value, "an entry id such as 1700000000000-0")


def names(field: str, values: Iterable[str], most_bytes: int = ID_BYTES) -> None:
    """Several names, none of them empty."""
    for value in values:
        if not 0 < len(value) * 4 <= most_bytes:
            name(field, value, most_bytes)


def count(field: str, values: Sized, most: int) -> None:
    """How many of something there may be."""
    if len(values) > most:
        raise refuse(f"number of {field}", len(values), f"at most {most}")


def few(field: str, values: Sequence[T], most: int) -> Sequence[T]:
    """The same, to be walked: of most messages nothing, and to find that out by walking takes three times as long."""
    if not values:
        return ()
    count(field, values, most)
    return values[:]


def at_least(field: str, value: float, least: float) -> None:
    """A number with a lower end."""
    if not value >= least:
        raise refuse(field, value, f"at least {least}")


def at_most(field: str, value: float, most: float) -> None:
    """Refuse a larger number."""
    if not value <= most:
        raise refuse(field, value, f"at most {most}")


def finite(field: str, value: float) -> None:
    """Neither NaN nor infinite."""
    if not math.isfinite(value):
        raise refuse(field, value, "a finite number")


def numbers(field: str, values: Mapping[str, float]) -> None:
    """A map of named finite numbers."""
    if not values:  # of most messages
        return
    if len(values) > NUM_NUMBERS:
        count(field, values, NUM_NUMBERS)
    for key in values:  # items() takes three times as long as to look each up
        if not 0 < len(key) <= SHORT_NAME:
            name(f"a name in {field}", key, NAME_BYTES)
        if not math.isfinite(values[key]):
            finite(f"{field}[{key!r}]", values[key])


def measurements(field: str, values: Mapping[str, float], most: int = NUM_NUMBERS) -> None:
    """A map of named numbers as met in training, where NaN is news and not an error."""
    if len(values) > most:
        count(field, values, most)
    for key in values:
        if not 0 < len(key) <= SHORT_NAME:
            name(f"a name in {field}", key, NAME_BYTES)


def texts(field: str, values: Mapping[str, str], most: int) -> None:
    """A map of strings."""
    if not values:
        return
    count(field, values, most)
    for key, value in values.items():
        name(f"a name in {field}", key, NAME_BYTES)
        text(f"{field}[{key!r}]", value, SENTENCE_BYTES)


def known(field: str, value: int, enumeration: EnumDescriptor, *, unknown: bool = False) -> None:
    """A value of the enumeration; its zero, which says nothing, only where that is said to be fine."""
    if value not in numbers_of(enumeration) or (value == 0 and not unknown):
        raise refuse(field, value, f"a {enumeration.name}")


@cache  # the library makes a new mapping at each look
def numbers_of(enumeration: EnumDescriptor) -> frozenset[int]:
    """All its values, zero among them."""
    return frozenset(enumeration.values_by_number)


def digest(field: str, value: bytes, *, optional: bool = False) -> None:
    """A sha256, or nothing where that is said to be fine."""
    if len(value) != 32 and not (optional and not value):
        raise refuse(field, value.hex(), f"32 bytes, not {len(value)}")
