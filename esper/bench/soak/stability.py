"""The soak: a student in training in which seeds come and go on and on, and what drifts meanwhile."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from esper.bench.lazily import loaded
from esper.bench.memory.probes import cuda, fragmentation, rss_mb
from esper.bench.soak.soaked import Sample, Soaked, append, read
from esper.errors import EsperError, SettingError

if TYPE_CHECKING:
    from esper.bench.work.growth.churn import Churn

MOST_SAMPLES = 2_000
LEAST_S = 0.1  # between two samples


@dataclass(slots=True)
class Soaking:
    """What goes on over all sessions: the samples so far, and the file that each is appended to."""

    hours: float
    every_s: float
    out: Path | None
    samples: list[Sample]
    on_sample: Callable[[Sample], object]

    @property
    def done_h(self) -> float:
        return self.samples[-1].hours if self.samples else 0.0

    @property
    def last_step_ms(self) -> float:
        return self.samples[-1].step_ms if self.samples else 0.0

    @property
    def is_over(self) -> bool:
        return self.done_h >= self.hours

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.out is not None:
            append(self.out, sample)
        self.on_sample(sample)


def check(hours: float) -> None:
    """Raises SettingError for hours that are not a positive number."""
    if not (math.isfinite(hours) and hours > 0):
        raise SettingError("hours of the soak", hours, "a number above 0")


def soak(
    hours: float, *, out: Path | None = None, every_s: float = 0.0, on_sample: Callable[[Sample], object] = id
) -> Soaked:
    """Train for so many hours, and say what was recorded; Ctrl-C ends it early, and loses nothing.

    With `out`, each sample is appended there as a line of JSON, and a soak that finds such a file goes on from it
    until there are `hours` in all. A sample is taken every `every_s` seconds; with 0 there will be 2,000 of them.
    Raises SettingError for hours that are not a positive number, and for a file that is none of these.
    """
    check(hours)
    every_s = every_s or max(LEAST_S, hours * 3600 / MOST_SAMPLES)
    soaking = Soaking(hours, every_s, out, read(out) if out is not None and out.exists() else [], on_sample)
    session, interrupted = max((each.session for each in soaking.samples), default=0), False
    try:
        while not soaking.is_over:
            session += 1
            _session(soaking, session)
    except KeyboardInterrupt:
        interrupted = True
    return Soaked(tuple(soaking.samples), hours, interrupted)


def _session(soaking: Soaking, number: int) -> None:
    """Until the hours are over, or something is raised: that is an error, and the next session begins anew."""
    churning, device = loaded("growth.churn:Churn"), loaded("growth.churn:device")
    with closing(churning(device())) as churn:
        churn.life()  # what is loaded on first use is no drift
        session = Session(soaking, number, churn)
        churn.tick = session.tick
        try:
            while not soaking.is_over:
                churn.life()
        except (EsperError, RuntimeError) as error:
            churn.failed(f"{type(error).__name__}: {error}")
            session.sample()


class Session:
    """One process's part of a soak, or its part from one error to the next."""

    def __init__(self, soaking: Soaking, number: int, churn: Churn) -> None:
        self.soaking, self.number, self.churn = soaking, number, churn
        self.before_h, self.begun_s, self.num_collected = soaking.done_h, time.monotonic(), _collections()
        self.due_s = self.begun_s + soaking.every_s
        churn.counts, churn.step_ms = type(churn.counts)(), []

    def tick(self) -> None:
        """After each step."""
        if time.monotonic() >= self.due_s:
            self.sample()

    def sample(self) -> None:
        counts, times, now_s = self.churn.counts, self.churn.step_ms, time.monotonic()
        self.due_s = now_s + self.soaking.every_s
        self.churn.step_ms = []
        self.soaking.add(
            Sample(
                session=self.number,
                hours=self.before_h + (now_s - self.begun_s) / 3600,
                rss_mb=rss_mb(),
                step_ms=statistics.median(times) if times else self.soaking.last_step_ms,
                steps=counts.steps,
                lives=counts.lives,
                refused=counts.refused,
                errors=counts.errors,
                collections=_collections() - self.num_collected,
                fragmentation=None if (on := cuda()) is None else fragmentation(on),
                last_error=counts.last_error,
            )
        )


def _collections() -> int:
    """Runs of the collector in this process, of all generations."""
    return sum(each["collections"] for each in gc.get_stats())
