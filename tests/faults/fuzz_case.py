"""One bad input, and a class of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from esper.bus.group.delivery import FIELD, body_of
from tests.faults.forge import Forge

ACCEPTED = "accepted"


class Case(NamedTuple):
    """An entry as it is added to a stream: fields and values in a row. `command_id`: what takes effect, if it may."""

    fields: tuple[bytes, ...]
    command_id: str = ""

    @property
    def body(self) -> bytes:
        """What a reader takes for the message."""
        return body_of(self.fields)


Make: TypeAlias = Callable[[Forge, int], Case]  # which of its class it is: 0, 1, 2, ...


@dataclass(frozen=True, slots=True)
class Class:
    """A way to be wrong. `allowed`: names of reasons; ACCEPTED among them: what may, or has to, take effect."""

    name: str
    make: Make
    allowed: frozenset[str]
    heavy: bool = False  # of megabytes
    by_record: bool = False  # told by what was seen before, not by its bytes
    audited: bool = True  # its signature is good, or it never comes so far that this matters

    @property
    def may_pass(self) -> bool:
        return ACCEPTED in self.allowed

    @property
    def passes(self) -> bool:
        """Whether it has to take effect."""
        return self.allowed == {ACCEPTED}


def entry(sealed: bytes, command_id: str = "") -> Case:
    """As producers add it."""
    return Case((FIELD, sealed), command_id)
