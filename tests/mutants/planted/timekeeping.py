"""Planted bugs: whose clock is gone by."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

APART = "tests/test_clocks_apart.py"

MUTANTS = (
    Mutant(
        "a_runtime_seals_by_its_machines_clock",
        "esper/runtime/beside/assembly.py",
        "Sealer(access.keyring, Role.WORKER, name, clock_ns=clock.now_ns)",
        "Sealer(access.keyring, Role.WORKER, name)",
        (f"{APART}::test_a_runtime_seals_by_the_servers_clock",),
    ),
    Mutant(
        "a_coordinator_seals_by_its_machines_clock",
        "esper/runtime/coordinator/assembly.py",
        "Sealer(keys, Role.COORDINATOR, name, clock_ns=clock.now_ns)",
        "Sealer(keys, Role.COORDINATOR, name)",
        (f"{APART}::test_a_coordinator_seals_by_the_servers_clock",),
    ),
    Mutant(
        "what_is_in_flight_is_of_the_future_once_the_clock_is_set_back",
        "esper/runtime/serving/clock_skew.py",
        "self._clock.has_been_at(seen_ms)",
        "at_ms < now_ms",
        (f"{APART}::test_what_was_added_before_the_clock_was_set_back_is_as_old_as_its_entry",),
    ),
    Mutant(
        "whatever_lies_ahead_of_the_clock_is_believed",
        "esper/runtime/serving/clock_skew.py",
        "self._clock.has_been_at(seen_ms)",
        "at_ms > now_ms",
        (f"{APART}::test_what_was_added_before_the_clock_was_set_back_is_as_old_as_its_entry",),
    ),
    Mutant(
        "an_entry_in_hand_is_opened_again",
        "esper/runtime/coordinator/loop.py",
        "is not None and held.body == delivery.body:\n",
        "is not None and held.body != delivery.body:\n",
        (f"{APART}::test_a_command_in_hand_is_answered_once_though_its_group_is_gone_and_the_clock_set_back",),
    ),
    Mutant(
        "a_ghost_is_told_as_often_for_as_long_as_it_trains",
        "esper/tamiyo/evicted_replicas.py",
        "now_ns, min(2 * for_ns, LONGEST_NS)\n",
        "now_ns, for_ns\n",
        ("tests/test_replicas.py::test_one_that_cannot_read_its_eviction_is_told_less_and_less_often",),
    ),
)
