"""A breaker opens at its threshold, lets a probe through after a while, and closes on success only."""

from __future__ import annotations

import math

import pytest

from esper.errors import SettingError
from esper.kasmina.breaker import BREAKERS, CLOSED, HALF_OPEN, OPEN, Breaker, BreakerSettings, breakers_of
from tests.clocks import Clock


def failed(breaker: Breaker, clock: Clock, *times: float) -> list[int]:
    states: list[int] = []
    for clock.now_s in times:
        breaker.fail()
        states.append(breaker.state)
    return states


def test_it_opens_at_its_threshold_and_forgets_what_is_older_than_its_window() -> None:
    clock = Clock(1000.0)
    breaker = Breaker(BreakerSettings(threshold=3, open_s=100, window_s=10), clock)

    states = failed(breaker, clock, 1001, 1002, 1050, 1051, 1052)  # the first two are forgotten by the third

    assert states == [CLOSED, CLOSED, CLOSED, CLOSED, OPEN]


def test_without_a_window_failures_add_up_however_far_apart_and_success_between_forgives_none() -> None:
    clock = Clock(1000.0)
    breaker = Breaker(BREAKERS["isolation"], clock)

    states = failed(breaker, clock, 1000, 5000)
    breaker.succeed()
    states += failed(breaker, clock, 90_000)

    assert states == [CLOSED, CLOSED, OPEN]


def test_any_failure_while_half_open_opens_it_again() -> None:
    clock = Clock(1000.0)
    breaker = Breaker(BreakerSettings(threshold=3, open_s=30, successes=2), clock)
    failed(breaker, clock, 1000, 1001, 1002)

    clock.now_s = 1032
    half_open = breaker.state
    breaker.succeed()
    reopened = failed(breaker, clock, 1033)
    clock.now_s = 1062.9
    still = breaker.state

    assert (half_open, reopened, still) == (HALF_OPEN, [OPEN], OPEN)


def test_it_closes_after_successes_in_a_row_while_half_open() -> None:
    clock = Clock(1000.0)
    breaker = Breaker(BreakerSettings(threshold=2, open_s=30, successes=2), clock)
    failed(breaker, clock, 1000, 1000)
    breaker.succeed()  # open: counts for nothing
    clock.now_s = 1030

    breaker.succeed()
    after_one = breaker.state
    breaker.succeed()

    assert (after_one, breaker.state) == (HALF_OPEN, CLOSED)
    assert failed(breaker, clock, 1031, 1032) == [CLOSED, OPEN]  # what came before is forgotten


def in_another_process(breaker: Breaker, wall: Clock, away_s: float) -> tuple[Breaker, Clock]:
    """Taken up so many seconds later by the wall's clock, where the process's own began at 5 s."""
    state, own, later = breaker.state_dict(), Clock(1000.0), Clock(1000.0)
    own.now_s, later.now_s = 5.0, wall.now_s + away_s
    other = Breaker(breaker.settings, own, wall=later)
    other.load_state_dict(state)
    return other, own


@pytest.mark.parametrize(("away_s", "open_for_s"), [(0.0, 20), (12.0, 8), (19.5, 1), (20.0, 0), (-3600.0, 20)])
def test_in_another_process_it_is_open_for_what_is_left_of_its_time(away_s: float, open_for_s: int) -> None:
    clock, wall = Clock(1000.0), Clock(1000.0)
    breaker = Breaker(BreakerSettings(threshold=3, open_s=30), clock, wall=wall)
    failed(breaker, clock, 1000, 1001, 1002)
    clock.now_s = 1012.0

    other, own = in_another_process(breaker, wall, away_s)
    waited = 0
    while other.state == OPEN:
        own.now_s += 1.0
        waited += 1

    assert waited == open_for_s
    assert other.state == HALF_OPEN and failed(other, own, own.now_s) == [OPEN]


def test_in_another_process_what_it_met_counts_and_is_forgotten_in_its_window() -> None:
    clock, wall = Clock(1000.0), Clock(1000.0)
    breaker = Breaker(BreakerSettings(threshold=3, open_s=30, window_s=60), clock, wall=wall)
    failed(breaker, clock, 1000, 1040)

    soon, own = in_another_process(breaker, wall, 10)
    late, later = in_another_process(breaker, wall, 25)  # the first of the two is 65 s back by then

    assert failed(soon, own, own.now_s) == [OPEN]
    assert failed(late, later, later.now_s) == [CLOSED]
    assert failed(late, later, later.now_s) == [OPEN]


def test_the_six_breakers_have_the_thresholds_and_times_of_the_documents() -> None:
    clock = Clock(1000.0)
    found = {}
    for name, breaker in breakers_of(clock).items():
        num = 0
        while breaker.state == CLOSED:
            breaker.fail()
            num += 1
        opened = clock.now_s
        while breaker.state == OPEN:
            clock.now_s += 1.0
        found[name] = (num, clock.now_s - opened)

    assert found == {
        "isolation": (3, 30),
        "memory": (5, 60),
        "kernel": (10, 30),
        "recompile": (3, 120),
        "teacher": (2, 180),
        "optimizer": (3, 30),
    }


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ((0, 30.0), "breaker threshold.*0.*at least 1"),
        ((3, -1.0), "breaker open_s.*-1.0.*at least 0"),
        ((3, math.nan), "breaker open_s.*nan"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(fields: tuple[int, float], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        BreakerSettings(*fields)
