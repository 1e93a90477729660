"""What a time on the command line means: an entry, so long ago, or a moment of a clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from esper.cli.output.moments import after, moment, said_at, up_to
from esper.cli.output.passages import Passage
from esper.errors import SettingError
from esper.leyline.entries import entry_order

NOW_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "before_s"),
    [("90s", 90.0), ("5m", 300.0), ("1.5h", 5400.0), ("2d", 172_800.0), ("2023-11-14T22:13:20Z", 0)],
)
def test_a_time_means_entries_from_then_on(text: str, before_s: float) -> None:
    at_ms = int((NOW_S - before_s) * 1000)

    assert entry_order(after("since", text, NOW_S)) == (at_ms - 1, 2**64 - 1) < (at_ms, 0)
    assert entry_order(up_to("until", text, NOW_S)) == (at_ms, 2**64 - 1)


@pytest.mark.parametrize(("before_s", "num_characters"), [(0.0, 12), (259_200.0, 23)])
def test_what_is_said_of_an_entry_is_what_since_takes(before_s: float, num_characters: int) -> None:
    """The day only of another day's."""
    at_ms = int((NOW_S - before_s) * 1000) + 7

    said = said_at(f"{at_ms}-3", NOW_S)

    assert len(said) == num_characters and said.endswith(":20.007")
    assert entry_order(after("since", said, NOW_S)) == (at_ms - 1, 2**64 - 1)


@pytest.mark.parametrize(("at_ms", "offset"), [(1_698_539_400_007, "+02:00"), (1_698_543_000_007, "+01:00")])
@pytest.mark.usefixtures("in_berlin")
def test_a_moment_names_its_zone_and_is_what_since_takes(at_ms: int, offset: str) -> None:
    """02:30 of the day that has it twice."""
    said = moment(at_ms)

    assert said == f"2023-10-29T02:30:00.007{offset}"
    assert moment(at_ms, UTC).endswith("+00:00")
    assert [entry_order(up_to("until", each, NOW_S))[0] for each in (said, moment(at_ms, UTC))] == [at_ms, at_ms]


def test_of_an_id_that_is_no_time_the_id_is_said() -> None:
    assert said_at(f"{2**64 - 1}-0", NOW_S) == f"{2**64 - 1}-0"


def test_a_time_of_day_is_today_in_this_zone() -> None:
    midnight = time.mktime((*time.localtime(NOW_S)[:3], 0, 0, 0, 0, 0, -1))

    assert entry_order(after("since", "00:00", NOW_S))[0] == int(midnight * 1000) - 1


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An hour ahead of UTC, in summer two; without a table of zones, which not every machine has."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "now", "meant"),
    [
        ("00:00", "2023-10-29T12:00:00Z", "2023-10-28T22:00:00Z"),
        ("12:00", "2023-10-29T12:00:00Z", "2023-10-29T11:00:00Z"),
        ("22:13Z", "2023-11-14T23:30:00Z", "2023-11-14T22:13:00Z"),
        ("22:13+05:45", "2023-11-14T17:00:00Z", "2023-11-14T16:28:00Z"),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_a_time_of_day_has_the_offset_of_that_hour_or_the_zone_that_it_names(text: str, now: str, meant: str) -> None:
    now_s, meant_s = (datetime.fromisoformat(each).timestamp() for each in (now, meant))

    assert entry_order(up_to("until", text, now_s))[0] == int(meant_s * 1000)


@pytest.mark.parametrize("text", ["$", "0", "17-3", "17"])
def test_an_entry_id_stays_what_it_is(text: str) -> None:
    assert after("since", text, NOW_S) == text


@pytest.mark.parametrize("text", ["", "now", "25:00", "2023-13-01", "-5m", "5w", "9" * 30])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="since"):
        after("since", text, NOW_S)


def test_nothing_is_followed_behind_an_end_that_has_passed() -> None:
    assert Passage.of("", "5m", None, True, NOW_S).follows is False
    assert Passage.of("", "2023-11-14T22:13:21Z", None, True, NOW_S).follows is True
