"""Opens what is read late as of when it was added, where the server's clock has been set back since."""

from __future__ import annotations

from collections.abc import Collection

from esper.bus.connect import ServerClock
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.checks import CLOCK_SLACK_MS, MS_NS
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import unpack
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import EVERYONE, Opened, Opener


class DatedOpener(Opener):
    """Takes an entry ahead of the server's clock by its own time, if the clock has been there.

    This process must have seen it there, a second less at most; or an earlier one has met the entry, as each of the
    record (no guard).
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
        if self._is_of_record:
            return self.open_again(data, entry_id, now_ms)
        try:
            return super().open(data, entry_id, now_ms)
        except RefusedError:
            at_ms = entry_ms(entry_id)
            seen_ms = at_ms - CLOCK_SLACK_MS
            if at_ms <= now_ms or not self._clock.has_been_at(seen_ms):
                raise
            return super().open(data, entry_id, at_ms)

    def open_again(self, data: bytes, entry_id: str, now_ms: int) -> Opened:
        """The same of what an earlier process has met: fresh then, it is so still.

        Ahead of the server's clock it was added before that was set back, by its own time; or since then, while ids
        stand still, when it is as old as its seal says. Its key must hold at the entry's time all the same.
        """
        try:
            return super().open(data, entry_id, now_ms)
        except RefusedError:
            at_ms = entry_ms(entry_id)
            if at_ms <= now_ms + CLOCK_SLACK_MS:
                raise
        try:
            return super().open(data, entry_id, at_ms)
        except RefusedError as error:
            if error.reason != pb.ReasonCode.REASON_STALE:
                raise
            return super().open(data, entry_id, unpack(data).header.issued_at_ns // MS_NS)
