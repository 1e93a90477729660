"""A load asks on schedule, whatever becomes of its requests, and counts what it did not come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from esper.bench.load.arrivals import MOST_AT_ONCE, Arrivals
from esper.bench.load.loop import close_books, drive
from esper.bench.load.results import Result
from esper.bench.load.settings import Load, checked_kind
from esper.bench.load.tally import Tally
from esper.errors import BusError, SettingError


@dataclass
class Script:
    """Work whose answers the test chooses."""

    answers: bool = True
    breaks: bool = False
    asked: list[float] = field(default_factory=list)
    num_waiting: int = 0

    async def send(self, due_s: Sequence[float]) -> None:
        self.asked += due_s
        self.num_waiting += 0 if self.answers else len(due_s)

    async def listen(self) -> None:
        if self.breaks:
            raise BusError("the stream is gone")
        await asyncio.Event().wait()


def test_a_request_that_is_sent_late_was_due_when_it_was_due() -> None:
    arrivals = Arrivals(rate=10.0, seconds=1.0, began_s=100.0)

    first, then = arrivals.take(100.0), arrivals.take(100.55)

    assert first == [100.0]
    assert then == pytest.approx([100.1, 100.2, 100.3, 100.4, 100.5])
    assert arrivals.wait_s(100.55) == pytest.approx(0.05)


def test_all_of_the_time_is_asked_and_nothing_after_it() -> None:
    arrivals = Arrivals(rate=1_000.0, seconds=0.5, began_s=0.0)

    taken = [arrivals.take(9.0) for _ in range(20)]

    assert sum(map(len, taken)) == 500
    assert max(map(len, taken)) == MOST_AT_ONCE
    assert arrivals.wait_s(9.0) is None


def test_a_load_that_only_watches_lasts_its_time() -> None:
    arrivals = Arrivals(rate=0.0, seconds=2.0, began_s=0.0)

    assert (arrivals.take(1.0), arrivals.wait_s(1.5), arrivals.wait_s(2.0)) == ([], 0.5, None)


async def test_it_ends_once_all_is_answered() -> None:
    work = Script()

    await drive(soon(), work, asyncio.Event(), patience_s=1e6)

    assert work.asked == pytest.approx([0.0, 0.0, 0.0], abs=0.01)


async def test_it_waits_for_answers_no_longer_than_patience() -> None:
    work, result = Script(answers=False), Result("run", 300.0, 0.0, Tally("command"))
    arrivals = soon()

    await drive(arrivals, work, asyncio.Event(), patience_s=0.02)
    result.tally.counts["sent"] = 3
    close_books(result, arrivals, work, now_s=arrivals.ends_s)

    assert (len(work.asked), result.tally.counts["unanswered"]) == (3, 3)


async def test_it_ends_at_once_when_told_to_and_counts_what_was_due() -> None:
    stopping, work, result = asyncio.Event(), Script(), Result("run", 10.0, 0.0, Tally("command"))
    arrivals = Arrivals(rate=10.0, seconds=1e6, began_s=0.0)
    stopping.set()

    await drive(arrivals, work, stopping, patience_s=1e6, clock=lambda: 0.0)
    close_books(result, arrivals, work, now_s=0.95)

    assert result.tally.counts["unsent"] == 10
    assert result.seconds == pytest.approx(0.95)


async def test_what_ends_the_hearing_of_answers_is_raised() -> None:
    with pytest.raises(BusError, match="the stream is gone"):
        await drive(Arrivals(1.0, 1e6, 0.0), Script(breaks=True), asyncio.Event(), 0.0, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("kind", "rate", "seconds", "expected"),
    [
        ("command", 0.0, 1.0, "--rate is 0.0"),
        ("telemetry", float("nan"), 1.0, "--rate is nan"),
        ("barrier", -1.0, 1.0, "--rate is -1.0"),
        ("command", 1.0, 0.0, "--seconds is 0.0"),
        ("command", 1.0, float("inf"), "--seconds is inf"),
        ("commands", 1.0, 1.0, "--kind is 'commands'; expected one of command, telemetry, barrier"),
    ],
)
def test_what_cannot_be_asked_is_said(kind: str, rate: float, seconds: float, expected: str) -> None:
    with pytest.raises(SettingError, match=expected):
        Load(checked_kind(kind), rate, seconds)


def soon() -> Arrivals:
    """Three requests that are due by now."""
    return Arrivals(rate=300.0, seconds=0.01, began_s=0.0)
