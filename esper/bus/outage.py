"""Says once that Redis cannot serve a process, however many of its parts notice, and once that it serves all again."""

from __future__ import annotations

import structlog

from esper.errors import BusError

log = structlog.get_logger()


class Outage:
    """Who waits for Redis. One for each writer, so one for each process and run."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()

    def begins(self, who: str, error: BusError) -> None:
        """This part has to try again."""
        if not self._waiting:
            log.warning("bus.lost", who=who, why=str(error))
        self._waiting.add(who)

    def ends(self, who: str) -> None:
        """This part was served."""
        if who in self._waiting:
            self._waiting.remove(who)
            if not self._waiting:
                log.info("bus.regained", who=who)
