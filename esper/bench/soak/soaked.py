"""What a soak recorded: samples over hours, kept as lines of JSON, and the figures that they come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from esper.bench.figures import DERIVED, Figure, Ratio, not_measured
from esper.bench.soak.drift import Drift, drift
from esper.errors import SettingError

ROW = "stability"
# kasmina-performance-validation.md, 3.1: errors below 0.1 %, memory within 10 %, step time within 15 %; 1.2: 8 %.
MOST_ERRORS, MOST_MEMORY, MOST_TIME, MOST_FRAGMENTATION, FRAGMENTATION_ASPIRED = 0.001, 1.10, 1.15, 0.08, 0.05
NO_CUDA = "no CUDA device"
TOO_SHORT = "too few samples for a slope"


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts are of its session so far, `hours` of all sessions; `step_ms` is the median since the sample before."""

    session: int
    hours: float
    rss_mb: float
    step_ms: float
    steps: int
    lives: int
    refused: int
    errors: int
    collections: int
    fragmentation: float | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class Soaked:
    """All samples of a soak that was to take `asked_h` hours."""

    samples: tuple[Sample, ...]
    asked_h: float
    interrupted: bool

    @property
    def hours(self) -> float:
        return self.samples[-1].hours if self.samples else 0.0

    def total(self, name: str) -> int:
        """Of a count, over all sessions."""
        last = {each.session: each for each in self.samples}
        return sum(getattr(each, name) for each in last.values())

    def drift_of(self, name: str) -> Drift | None:
        return drift(
            [each.hours for each in self.samples],
            [getattr(each, name) for each in self.samples],
            [each.session for each in self.samples],
        )

    def figures(self) -> Iterator[Figure]:
        """Error rate, drift of memory and of step time, fragmentation, and what was done meanwhile."""
        sessions, steps = len({each.session for each in self.samples}), self.total("steps")
        shape = f"{self.hours:.4g} h of {self.asked_h:g}, {sessions} sessions"
        for stat, unit in {"steps": "steps", "lives": "seeds", "refused": "gates", "errors": "errors"}.items():
            yield Figure(ROW, "soak", stat, float(self.total(stat)), unit, steps, shape=shape)
        if not steps:
            yield Figure(
                ROW, "soak", "error rate", None, "", 0, not_measured("it ended before its first sample"), shape
            )
            return
        rate = self.total("errors") / steps
        yield Figure(ROW, "soak", "error rate", rate, "of steps", steps, DERIVED, shape, target=MOST_ERRORS)
        yield from self._drifts("rss_mb", "RSS", "MB", shape, MOST_MEMORY)
        yield from self._drifts("step_ms", "step time", "ms", shape, MOST_TIME)
        yield self._fragmentation(shape)
        per_hour = self.total("collections") / self.hours
        yield Figure(ROW, "soak", "collections per hour", per_hour, "1/h", steps, DERIVED, shape)

    def _drifts(self, name: str, stat: str, unit: str, shape: str, target: float) -> Iterator[Figure]:
        values = [getattr(each, name) for each in self.samples]
        num, middle = len(values), sorted(values)[len(values) // 2]
        yield Figure(ROW, "soak", stat, middle, unit, num, shape=shape, samples=values)
        found = self.drift_of(name)
        if found is None:
            yield Figure(ROW, "soak", f"{stat}, slope", None, f"{unit}/h", num, not_measured(TOO_SHORT), shape)
            return
        bounds = {"slope": found.slope, "slope, low": found.low, "slope, high": found.high}
        for which, value in bounds.items():
            yield Figure(ROW, "soak", f"{stat}, {which}", value, f"{unit}/h", num, DERIVED, shape)
        ratio, low, high = found.end_to_start()
        vs = Ratio("its start", ratio, low, high)
        yield Figure(ROW, "soak", f"{stat}, end to start", ratio, "x", num, DERIVED, shape, vs, target=target)

    def _fragmentation(self, shape: str) -> Figure:
        found = [each.fragmentation for each in self.samples if each.fragmentation is not None]
        if not found:
            return Figure(ROW, "GPU", "fragmentation", None, "of reserved", 0, not_measured(NO_CUDA), shape)
        figure = Figure(ROW, "GPU", "fragmentation", found[-1], "of reserved", len(found), shape=shape, samples=found)
        return figure.aimed(MOST_FRAGMENTATION, FRAGMENTATION_ASPIRED)


def append(path: Path, sample: Sample) -> None:
    """One line, below one that was cut off."""
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with open(path, "a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(asdict(sample)) + "\n")


def read(path: Path) -> list[Sample]:
    """Raises SettingError where a line is no sample. One that was cut off with its writer is left out."""
    found = list[Sample]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        values = _values(line)
        if values is not None and {*values} == NAMES:
            found.append(Sample(**values))
        elif values is not None or not line.startswith(BEGINNING):
            raise SettingError(f"line {number} of {path}", line[:80], "a sample of a soak")
    return found


NAMES = {field.name for field in fields(Sample)}
BEGINNING = '{"session": '


def _values(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else {}
