"""What one process knows by itself: the server's clock as it last saw it, and which messages it has met."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, Protocol

from esper.bus.connect import ServerClock
from esper.leyline.checks import CLOCK_SLACK_MS, FRESH_MS
from esper.leyline.keys.keyring import MasterKey, MasterKeyring, RoleKeyring, Validity
from esper.leyline.kinds import Role
from esper.leyline.replay import ReplayGuard
from esper.runtime.serving.windows import part
from esper.runtime.timekeeping import LOOK_EVERY_S

MS, S = 1_000_000, 1_000_000_000
BEGIN_NS = 1_700_000_000 * S
RUN = "town"


class Server(Protocol):
    """Who has the clock that all go by."""

    passed_ns: int
    set_ns: int


class Clock(ServerClock):
    """The server's, as one process last saw it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server, self._seen_ns, self._looked_ns = server, server.set_ns, server.passed_ns

    def look_again(self) -> int:
        """By how much it was set since."""
        self._newest_ms = max(self._newest_ms, self.now_ms())
        self._looked_ns = self._server.passed_ns
        by_ns, self._seen_ns = self._server.set_ns - self._seen_ns, self._server.set_ns
        return by_ns

    @property
    def is_apart(self) -> bool:
        """Whether it is wrong by so much that what is sealed by it may be refused."""
        return abs(self._server.set_ns - self._seen_ns) > FRESH_MS * MS / 2

    @property
    def is_due(self) -> bool:
        """Whether it must be looked at by now."""
        return self._server.passed_ns - self._looked_ns >= LOOK_EVERY_S * S

    def now_ns(self) -> int:
        return self._server.passed_ns + self._seen_ns

    def now_ms(self) -> int:
        return self.now_ns() // MS


class Sealed(NamedTuple):
    """When something was sealed and added."""

    at_ms: int
    at: int
    passed_ns: int
    set_ns: int
    is_apart: bool
    """Whether by a clock that was apart from the server's."""

    def may_be_refused(self, clock: Clock, set_ns: int) -> bool:
        """For its age, by who reads with this clock, where the server's is set so by now."""
        is_dated = (
            self.at_ms - (self.passed_ns + self.set_ns) // MS <= CLOCK_SLACK_MS
        )  # set back behind the last, none is
        was_there = clock.has_been_at(self.at_ms - CLOCK_SLACK_MS)
        return self.is_apart or clock.is_apart or not was_there or not (is_dated or self.set_ns == set_ns)


class Windows:
    """Replay guards, persisted with what is settled, and whole again where Redis has lost some."""

    def __init__(self, logs: Iterable[str], stored: dict[str, bytes]) -> None:
        self.guards, self._settled = {name: ReplayGuard() for name in logs}, stored
        for name, guard in self.guards.items():
            guard.load(part(stored, name))

    def settle(self) -> dict[str, bytes]:
        """What Redis holds of them from now on."""
        changed = {
            f"{name}/{field}": value for name, guard in self.guards.items() for field, value in guard.changed().items()
        }
        if changed:
            self._settled = {name: value for name, value in (self._settled | changed).items() if value}
        return self._settled


@cache
def keyring(role: Role) -> RoleKeyring:
    """Of a run whose key is another half a minute after it began."""
    turn_ns = BEGIN_NS + 30 * S
    old = MasterKey(Validity(1, 0, turn_ns + 3600 * S), bytes(range(32)))
    new = MasterKey(Validity(2, turn_ns, 2**63), bytes(range(32, 64)))
    return MasterKeyring([old, new]).derive(RUN, [role])
