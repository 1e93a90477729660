"""Says once that Redis cannot serve a process, however many of its parts notice, and once that it serves all again."""

from __future__ import annotations

import structlog

from esper.bus.faults import UntrustedError
from esper.errors import BusError

log = structlog.get_logger()


class Outage:
    """Who waits for Redis. One for each writer, so one for each process and run."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        self._is_untrusted = False

    @property
    def said(self) -> str:
        """Who waits longest, and why; empty where nobody does."""
        return next((f"{who} waits: {why}" for who, why in self._waiting.items()), "")

    def begins(self, who: str, error: BusError) -> None:
        """This part has to try again. A certificate that has run out shows only at the connection after the loss."""
        if not self._waiting:
            log.warning("bus.lost", who=who, why=str(error))
        elif isinstance(error, UntrustedError) and not self._is_untrusted:
            log.warning("bus.untrusted", who=who, why=str(error))
        self._is_untrusted |= isinstance(error, UntrustedError)
        self._waiting[who] = str(error)

    def ends(self, who: str) -> None:
        """This part was served."""
        if who in self._waiting:
            del self._waiting[who]
            if not self._waiting:
                self._is_untrusted = False
                log.info("bus.regained", who=who)
