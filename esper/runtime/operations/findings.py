"""What a look at one thing found: as it should be, or not, with what was met, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warn", "fail"]

ORDER: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report. `todo` is empty where nothing is to be done."""

    check: str
    status: Status
    met: str
    expected: str
    todo: str = ""

    def row(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


def ok(check: str, met: str, expected: str) -> Finding:
    """All is as it should be."""
    return Finding(check, "ok", met, expected)


def judged(check: str, met: str, expected: str, todo: str, status: Status) -> Finding:
    """A finding with advice only where there is something to do."""
    return Finding(check, status, met, expected, todo if status != "ok" else "")


def graded(value: float, warn_above: float, fail_above: float) -> Status:
    """By two limits; what is no number fails."""
    if value <= warn_above:
        return "ok"
    return "warn" if value <= fail_above else "fail"


def worst(findings: Iterable[Finding]) -> Status:
    """The worst of all; ok where there are none."""
    return ORDER[max((ORDER.index(finding.status) for finding in findings), default=0)]
