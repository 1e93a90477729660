"""Opens what is read late as of when it was added, where the server's clock has been set back since."""

from __future__ import annotations

from collections.abc import Collection

from esper.bus.connect import ServerClock
from esper.errors import RefusedError
from esper.leyline.checks import CLOCK_SLACK_MS
from esper.leyline.entries import entry_ms
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import EVERYONE, Opened, Opener


class DatedOpener(Opener):
    """Takes an entry ahead of the server's clock by its own time, if the clock has been there.

    This process must have seen it there, a second less at most; or reads the record (no guard), of which an earlier
    one has met each entry.
    """

    def __init__(
        self,
        keyring: RoleKeyring,
        clock: ServerClock,
        *,
        name: str = EVERYONE,
        guard: ReplayGuard | None,
        accept: Collection[Domain],
        carries_out: bool = False,
    ) -> None:
        super().__init__(keyring, name=name, guard=guard, accept=accept, carries_out=carries_out)
        self._clock, self._is_of_record = clock, guard is None

    def open(self, data: bytes, entry_id: str, now_ms: int) -> Opened:
        """As an opener does; refused is what neither time fits."""
        try:
            return super().open(data, entry_id, now_ms)
        except RefusedError:
            at_ms = entry_ms(entry_id)
            seen_ms = at_ms - CLOCK_SLACK_MS
            if at_ms <= now_ms or not (self._is_of_record or self._clock.has_been_at(seen_ms)):
                raise
            return super().open(data, entry_id, at_ms)
