"""Whether a process lives and whether it is fit for work: rules over what was seen. Knows no Redis and no HTTP."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from esper.leyline.keys.rolekeys import Validity
from esper.runtime.operations.findings import Finding, Status, graded, judged, ok

STALE_S = 10.0
UNANSWERED_S = 3.0
"""Redis is away once it has answered nothing for so long."""
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 30.0
"""A seal is fresh for 60 s either way: half of that is left to drift on."""
LAG_WARN_S, LAG_FAIL_S = 2.0, 10.0
KEYS_WARN_S = 7 * 86_400.0

Clock: TypeAlias = Callable[[], float]
Source: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class Vitals:
    """What was seen of Redis lately. Times are of the clock that Health goes by; None: not seen yet."""

    answered_s: float | None = None
    up_since_s: float | None = None
    """Since when it has served this process without a break; None: it does not."""
    why: str = ""
    """What went wrong last; empty: nothing since it answered."""
    waiting: str = ""
    """Who waits for Redis to take a write or a read, and why; empty: nobody."""
    round_trip_s: float = math.nan
    skew_s: float = math.nan
    lags_s: dict[Source, float] = field(default_factory=dict)


class Health:
    """Alive: the loop answers, and what it reads makes progress while Redis serves. A Redis that does not is no reason
    to end a process, which waits for it and loses nothing by that. Ready: fit for work now, Redis and all.
    """

    def __init__(
        self, identity: Mapping[str, str] | None = None, clock: Clock = time.monotonic, stale_s: float = STALE_S
    ) -> None:
        self.identity, self.clock, self.stale_s = dict(identity or {}), clock, stale_s
        self.vitals = Vitals()
        self.keys: Callable[[], Sequence[Validity]] | None = None
        self.now_ns = time.time_ns
        self.progress: dict[str, Callable[[], float]] = {}
        self.sources: dict[Source, Callable[[], bool]] = {}
        """What is read in a group, so that its lag counts; and whether it is held back on purpose."""

    def watch(self, name: str, last_s: Callable[[], float]) -> None:
        """A source, by the time of its last progress on the same clock."""
        self.progress[name] = last_s

    def is_up(self) -> bool:
        """Whether Redis answers."""
        answered_s = self.vitals.answered_s
        return not self.vitals.why and answered_s is not None and self.clock() - answered_s <= UNANSWERED_S

    def live(self) -> list[Finding]:
        """What a restart would mend, if anything fails."""
        since_s = self.vitals.up_since_s
        if since_s is None or not self.is_up():
            met = "waits for Redis: nothing is expected of it before that serves it"
            return [ok("progress", met, "progress while Redis serves")]
        return [self._progress(name, last_s(), since_s) for name, last_s in self.progress.items()]

    def ready(self) -> list[Finding]:
        """All that this process needs for its work."""
        found = [self._redis(), self._clock()]
        found += [] if self.keys is None else [keyring(self.keys(), self._server_ns())]
        found += [self._lag(source, lag_s) for source, lag_s in self.vitals.lags_s.items()]
        return found + [self._progress(name, last_s(), last_s()) for name, last_s in self.progress.items()]

    def _server_ns(self) -> int:
        """By the clock of Redis, as far as it was compared: keys are taken by that."""
        skew_s = self.vitals.skew_s
        return self.now_ns() - (0 if math.isnan(skew_s) else int(skew_s * 1e9))

    def _progress(self, name: str, last_s: float, since_s: float) -> Finding:
        age_s = self.clock() - max(last_s, since_s)
        return judged(
            f"progress of {name}",
            f"read {age_s:.1f} s ago" if age_s <= self.stale_s else f"no progress for {age_s:.1f} s",
            f"a read within {self.stale_s:g} s",
            "look at the log of this process; where Redis answers and this goes on, restart it",
            graded(age_s, self.stale_s, self.stale_s),
        )

    def _redis(self) -> Finding:
        vitals = self.vitals
        expected, todo = "an answer every second", "start Redis, or mend the way to it; this process waits for it"
        if not self.is_up():
            said = vitals.why or "no answer to the last look"
            return judged("redis", said, expected, todo, "fail")
        if vitals.waiting:
            return judged(
                "redis", vitals.waiting, "every read and write served", "see what Redis refuses: esper doctor", "fail"
            )
        return judged("redis", f"answered in {1e3 * vitals.round_trip_s:.1f} ms", expected, todo, "ok")

    def _clock(self) -> Finding:
        skew_s = self.vitals.skew_s
        return judged(
            "clock",
            "not compared yet" if math.isnan(skew_s) else f"{skew_s:+.3f} s from that of Redis",
            f"within {SKEW_WARN_S:g} s; seals go by that of Redis, but those of a controller on this machine",
            "let NTP set the clocks of this machine and of Redis (timedatectl, chronyc tracking)",
            graded(abs(skew_s), SKEW_WARN_S, math.inf),
        )

    def _lag(self, source: Source, lag_s: float) -> Finding:
        is_held = self.sources[source]()
        return judged(
            f"lag of {source[0]} ({source[1]})",
            f"{lag_s:.1f} s behind" + (", held back until there is room" if is_held else ""),
            f"unread for at most {LAG_WARN_S:g} s",
            "start another process of this role, or find out what slows this one: esper streams",
            "ok" if is_held else graded(lag_s, LAG_WARN_S, LAG_FAIL_S),
        )


def keyring(validities: Iterable[Validity], now_ns: int) -> Finding:
    """Whether a key is valid, and for how long one will be."""
    left_s = valid_until_ns(validities, now_ns) / 1e9 - now_ns / 1e9
    status: Status = "fail" if left_s <= 0 else "warn" if left_s < KEYS_WARN_S else "ok"
    return judged(
        "keyring",
        "no key that is valid now" if left_s <= 0 else f"valid for {span(left_s)}",
        f"a key valid for another {span(KEYS_WARN_S)}",
        "esper keys rotate, then esper keys derive this role's keyring anew; processes take it up by themselves",
        status,
    )


def valid_until_ns(validities: Iterable[Validity], now_ns: int) -> int:
    """Until when some key is valid without a gap, from now on; 0: none is valid now."""
    until_ns = now_ns
    for each in sorted(validities, key=lambda validity: validity.not_before_ns):
        if each.not_before_ns <= until_ns < each.not_after_ns:
            until_ns = each.not_after_ns
    return until_ns if until_ns > now_ns else 0


def span(seconds: float) -> str:
    """A time as a person says it."""
    for size_s, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
