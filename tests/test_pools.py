"""Pools hold so many bytes for so long, and budgets refuse what does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from esper.errors import RefusedError, SettingError
from esper.kernels.budget import Budget
from esper.kernels.pools import Pool, PoolStats
from tests.clocks import Clock


def pool(max_bytes: int, clock: Clock, ttl_s: float = 60.0) -> Pool[str, str]:
    """Of strings, a byte a character."""
    return Pool(max_bytes, ttl_s, len, clock)


def test_what_was_given_is_taken_once_newest_first_and_only_under_its_key() -> None:
    shelf = pool(100, Clock())
    for item in ("a1", "a2"):
        shelf.give("a", item)

    taken = [shelf.take(key) for key in ("b", "a", "a", "a")]

    assert taken == [None, "a2", "a1", None]
    assert (shelf.stats, shelf.num_bytes) == (PoolStats(hits=2, misses=2), 0)


def test_a_key_is_in_it_for_as_long_as_something_can_be_taken() -> None:
    clock = Clock()
    shelf = pool(100, clock, ttl_s=60.0)
    shelf.give("a", "a1")
    shelf.give("b", "b1")
    shelf.take("b")

    held = [key in shelf for key in "ab"]
    clock.now_s = 61.0

    assert held == [True, False]
    assert "a" not in shelf
    assert shelf.stats == PoolStats(hits=1, expired=1)


def test_the_least_recently_given_leaves_when_bytes_run_out() -> None:
    shelf = pool(10, Clock())
    for key, item in (("a", "aaaa"), ("b", "bbbb"), ("c", "cccccc")):
        shelf.give(key, item)

    assert [shelf.take(key) for key in "abc"] == [None, "bbbb", "cccccc"]
    assert shelf.stats.evicted == 1


def test_nothing_stays_longer_than_its_time() -> None:
    clock = Clock()
    shelf = pool(100, clock, ttl_s=60)
    shelf.give("a", "old")
    clock.now_s = 30
    shelf.give("a", "new")

    clock.now_s = 60
    left = (len(shelf), shelf.num_bytes)

    assert left == (1, 3)
    assert (shelf.take("a"), shelf.take("a"), shelf.stats.expired) == ("new", None, 1)


def test_an_item_larger_than_the_pool_is_not_kept_and_displaces_nothing() -> None:
    shelf = pool(4, Clock())
    shelf.give("a", "aaaa")

    assert not shelf.give("b", "bbbbb")
    assert (shelf.take("a"), shelf.stats.refused) == ("aaaa", 1)


def test_clearing_frees_all_bytes() -> None:
    shelf = pool(100, Clock())
    shelf.give("a", "aaaa")
    shelf.give("b", "bb")

    shelf.clear()
    assert (shelf.num_bytes, shelf.take("a"), shelf.stats.evicted) == (0, None, 2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["give", "take", "wait"]), st.sampled_from("abc"), st.integers(1, 7)), max_size=60
    )
)
def test_bytes_and_counts_add_up_whatever_happens(deeds: list[tuple[str, str, int]]) -> None:
    clock = Clock()
    shelf, num_given = pool(20, clock, ttl_s=10), 0
    for deed, key, amount in deeds:
        if deed == "give":
            num_given += shelf.give(key, key * amount)
        elif deed == "take":
            item = shelf.take(key)
            assert item is None or item == key * len(item)
        else:
            clock.now_s += amount
        assert 0 <= shelf.num_bytes <= 20

    left, hits = len(shelf), shelf.stats.hits
    drained = [key for key in "abc" for _ in range(left) if shelf.take(key) is not None]
    assert num_given == left + hits + shelf.stats.evicted + shelf.stats.expired
    assert (len(drained), shelf.num_bytes) == (left, 0)


@pytest.mark.parametrize("sizes", [(0, 1.0), (1, 0.0)])
def test_a_pool_without_room_or_time_is_refused(sizes: tuple[int, float]) -> None:
    with pytest.raises(SettingError, match="expected a number above 0"):
        Pool[str, str](sizes[0], sizes[1], len)


def test_a_budget_that_fills_is_told_at_85_percent_and_again_after_it_was_less() -> None:
    budget = Budget(1000)
    told: list[int] = []
    budget.filling = lambda: told.append(budget.used_bytes)

    for living, name, num_bytes in (
        ({}, "a", 849),
        ({"a": 849}, "b", 1),
        ({"a": 849, "b": 1}, "c", 49),
        ({"a": 849}, "d", 11),  # two of them are gone
    ):
        budget.hold(living)
        budget.reserve(name, num_bytes)

    assert told == [850, 860]


def test_pools_are_emptied_from_90_percent_on_and_what_was_set_aside_stays() -> None:
    budget, kept = Budget(1000), pool(1000, Clock())
    budget.watch(lambda: kept.num_bytes, kept.clear)
    kept.give("a", "a" * 400)

    used = []
    for name, num_bytes in (("a", 499), ("b", 1)):
        budget.reserve(name, num_bytes)
        used.append(budget.used_bytes)

    assert (used, kept.num_bytes, budget.is_short) == ([899, 500], 0, False)


def test_what_does_not_fit_is_refused_with_both_numbers_and_changes_nothing() -> None:
    budget = Budget(1000)
    budget.reserve("a", 300)

    with pytest.raises(RefusedError, match="s0 needs 701 bytes; 700 of 1000 are free"):
        budget.reserve("s0", 701)

    assert (budget.used_bytes, budget.is_short) == (300, False)
    budget.reserve("a", 1000)  # in place of its 300
    assert (budget.used_bytes, budget.is_short) == (1000, True)


def test_holding_anew_frees_what_is_gone() -> None:
    budget = Budget(1000)
    budget.reserve("gone", 900)

    budget.hold({"stays": 100})

    assert budget.used_bytes == 100


def test_a_budget_without_room_is_refused() -> None:
    with pytest.raises(SettingError, match="budget limit_bytes is 0; expected a number above 0"):
        Budget(0)
