"""What a run has warned of: critical events as they came, and breakers that have opened."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from esper.leyline import contracts as pb

MOST_SIGNALS = 64
OPENED = "breaker.opened"
BreakerState = Literal["open", "half-open", "opened"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """One breaker of one worker. Runs tell when it opens; that it has closed again is told by nothing."""

    name: str
    worker: str
    reason: str
    opened_ms: int  # by the worker's clock
    open_ms: int | None  # how long it stays open; None: not told
    times: int  # how often it opened

    def state(self, now_ms: int) -> BreakerState:
        """Half-open once its time is over: the next failure opens it again, a success closes it."""
        if self.open_ms is None:
            return "opened"
        return "open" if now_ms < self.opened_ms + self.open_ms else "half-open"


@dataclass
class Alarms:
    """The newest signals, and each breaker's last opening, by worker and name."""

    signals: deque[pb.EmergencySignal] = field(default_factory=lambda: deque(maxlen=MOST_SIGNALS))
    breakers: dict[tuple[str, str], Breaker] = field(default_factory=dict)

    def note(self, signal: pb.EmergencySignal) -> None:
        if signal in self.signals:  # read again, or copied by somebody who may write to the stream
            return
        self.signals.append(signal)
        if signal.reason == OPENED:
            self._note_breaker(signal)

    def _note_breaker(self, signal: pb.EmergencySignal) -> None:
        told = signal.attributes
        name = told.get("breaker") or "emergency"
        key = (signal.origin, name)
        times = self.breakers[key].times + 1 if key in self.breakers else 1
        self.breakers[key] = Breaker(
            name,
            signal.origin,
            told.get("reason", ""),
            signal.triggered_at_ns // 1_000_000,
            milliseconds(told.get("open_s", "")),
            times,
        )


def milliseconds(text: str) -> int | None:
    """Of seconds in words; None: they are none."""
    try:
        return round(float(text) * 1000)
    except (ValueError, OverflowError):
        return None
