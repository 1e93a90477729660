"""What the coordinator's loop asks of the rule that it serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeAlias

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.leyline.succession import Decision
from esper.runtime.coordinator.group_cleanup import Departures

Entry: TypeAlias = tuple[str, str]
"""A log by its name, and an entry of it by its id."""


class Outcome(Departures, Protocol):
    """What a coordinator answers."""

    decisions: list[Decision]
    receipts: list[pb.CommandReceipt]
    done: list[Entry]


class Awaiting(Protocol):
    """A round."""

    @property
    def missing(self) -> Collection[str]: ...


class Coordinates(Protocol):
    """The rule that this loop serves."""

    @property
    def barrier(self) -> Awaiting | None: ...
    def resume(self, decisions: Iterable[Decision]) -> Outcome: ...
    def on_heartbeat(self, heartbeat: pb.Heartbeat, now_ns: int) -> Outcome: ...
    def on_vote(self, vote: pb.BarrierVote, entry: Entry, now_ns: int) -> Outcome: ...
    def on_command(self, stream: str, opened: Opened, now_ns: int) -> Outcome: ...
    def on_refused(self, entry: Entry, error: RefusedError, now_ns: int) -> Outcome: ...
    def pass_over(self, entry: Entry) -> None: ...
    def has_room(self, stream: str) -> bool: ...
    def on_history_lost(
        self, gone: Collection[Entry], newest: Mapping[str, str], now_ns: int, again: bool
    ) -> Outcome: ...
    def on_deaf(self, now_ns: int) -> None: ...
    def on_clock_step(self, by_ns: int) -> None: ...
    def tick(self, now_ns: int) -> Outcome: ...
