"""When what has died is started again: later each time, and not without end."""

from __future__ import annotations

from esper.runtime.crew.restarts import Restarts
from esper.runtime.crew.runfile import Restart


def test_the_wait_doubles_with_each_death_up_to_the_longest() -> None:
    restarts = Restarts(Restart(first_s=0.5, longest_s=3.0, limit=10, window_s=100.0))

    assert [restarts.died(float(at)) for at in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_it_is_given_up_after_the_limit_within_the_window() -> None:
    restarts = Restarts(Restart(first_s=1.0, limit=2, window_s=60.0))

    assert [restarts.died(at) for at in (0.0, 10.0, 20.0)] == [1.0, 2.0, None]
    assert restarts.num_restarts == 2


def test_once_it_has_worked_deaths_before_the_window_are_forgotten() -> None:
    restarts = Restarts(Restart(first_s=1.0, limit=2, window_s=60.0))
    restarts.worked()

    assert [restarts.died(at) for at in (0.0, 61.0, 122.0, 183.0)] == [1.0] * 4


def test_what_has_never_worked_is_given_up_however_long_each_start_takes() -> None:
    restarts = Restarts(Restart(first_s=1.0, limit=2, window_s=60.0))

    assert [restarts.died(at) for at in (61.0, 122.0, 183.0)] == [1.0, 2.0, None]


def test_a_limit_of_zero_starts_nothing_again() -> None:
    assert Restarts(Restart(limit=0)).died(0.0) is None


def test_a_start_by_hand_forgives_what_was_before() -> None:
    restarts = Restarts(Restart(first_s=1.0, limit=1))
    restarts.died(0.0)

    restarts.forgive()

    assert restarts.died(1.0) == 1.0
