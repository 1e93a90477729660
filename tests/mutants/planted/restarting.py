"""Planted bugs: what a rank forgets where the runtime beside it is started anew."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OWED, LOOKBACK = "tests/test_owed_answers.py", "tests/test_lookback.py"
COPIES = "test_a_coordinator_that_begins_believes_no_copies_ahead_of_the_clock_of_what_was_said_long_ago"

MUTANTS = (
    Mutant(
        "a_rank_goes_on_where_the_decision_on_its_vote_is_lost",
        "esper/tolaria/boundary.py",
        "if self.is_in_group and self._vote is not None",
        "if False and self._vote is not None",
        ("tests/test_boundary.py::test_a_rank_of_a_group_ends_where_the_decision_on_its_vote_is_lost",),
    ),
    Mutant(
        "a_log_that_began_anew_by_a_clock_behind_is_past",
        "esper/runtime/beside/orders.py",
        "if is_newer or entry_order(delivery.entry_id) > self.past:",
        "if entry_order(delivery.entry_id) > self.past:",
        ("tests/test_orders.py::test_a_log_that_begins_anew_by_a_clock_behind_is_not_past",),
    ),
    Mutant(
        "a_heartbeat_does_not_say_which_leader_was_met",
        "esper/runtime/beside/orders.py",
        "heartbeat.lease_token, heartbeat.roster_generation, heartbeat.round_met = self.newest_met",
        "pass",
        ("tests/test_beside.py::test_a_heartbeat_says_which_leader_and_roster_its_runtime_has_met",),
    ),
    Mutant(
        "a_runtime_begun_anew_forgets_which_rounds_its_trainer_met",
        "esper/runtime/beside/orders.py",
        "self._round_met = max(self._round_met, heartbeat.round_met)",
        "pass",
        ("tests/test_orders.py::test_a_heartbeat_says_what_was_met_also_by_the_trainer_under_an_earlier_runtime",),
    ),
    Mutant(
        "what_a_commit_waits_for_is_never_looked_for",
        "esper/runtime/beside/loop.py",
        "for ref in last if last == self.following.orders.awaited() else ():",
        "for ref in last[:0]:",
        (
            "tests/test_beside.py::test_a_commit_does_not_wait_for_an_entry_that_is_on_no_log",
            "tests/test_beside.py::test_nor_for_one_that_the_runtime_before_it_refused",
        ),
    ),
    Mutant(
        "one_look_that_finds_nothing_ends_a_rank",
        "esper/runtime/beside/loop.py",
        "NUM_LOOKS = 5",
        "NUM_LOOKS = 1",
        ("tests/test_beside.py::test_a_look_that_finds_nothing_yet_ends_no_rank",),
    ),
    Mutant(
        "an_entry_that_is_on_no_log_is_waited_for",
        "esper/runtime/beside/orders.py",
        "        if ref in self.awaited():\n",
        "        if not ref:\n",
        ("tests/test_every_order.py::test_an_entry_refused_by_an_earlier_runtime_is_not_waited_for[missing]",),
    ),
    Mutant(
        "a_new_runtime_obeys_a_leader_that_was_replaced",
        "esper/runtime/beside/recall.py",
        "orders.leads(said, entry_order(at))",
        "pass",
        ("tests/test_every_order.py::test_a_runtime_that_is_started_anew_does_not_obey_a_leader_that_was_replaced",),
    ),
    Mutant(
        "a_new_runtime_knows_no_round_that_was_past_when_its_trainer_began",
        "esper/runtime/beside/recall.py",
        'orders.is_past(said, self._delivery("decisions", at))',
        "pass",
        ("tests/test_every_order.py::test_it_knows_what_was_decided_for_the_trainer_before_its_own",),
    ),
    Mutant(
        "a_new_runtime_asks_redis_alone_when_its_trainer_began",
        "esper/runtime/beside/assembly.py",
        "decided = decided or await",
        "decided = await",
        (
            "tests/test_beside.py"
            "::test_what_was_decided_before_its_trainer_began_is_past_though_redis_does_not_know_when",
        ),
    ),
    Mutant(
        "junk_counts_where_a_new_runtime_looks_who_leads",
        "esper/runtime/coordinator/lookback.py",
        "                continue\n",
        "                if num_refused == num:\n                    break\n                continue\n",
        ("tests/test_lookback.py::test_a_runtime_that_begins_behind_junk_obeys_no_leader_that_was_replaced",),
    ),
    Mutant(
        "what_a_replaced_leader_said_makes_the_rounds_of_the_next_one_past",
        "esper/runtime/beside/orders.py",
        "        if not self._succession.holds(decision):\n            return True\n        if self._leaves_out",
        "        if self._leaves_out",
        ("tests/test_orders.py::test_what_is_past_is_so_by_its_leader_and_not_by_one_that_was_replaced",),
    ),
    Mutant(
        "a_leader_that_counts_anew_is_past",
        "esper/runtime/beside/orders.py",
        "decision.round <= self._past_round and decision.lease_token == self._past_token",
        "decision.round <= self._past_round",
        ("tests/test_orders.py::test_a_leader_that_counts_anew_is_heard",),
    ),
    Mutant(
        "a_round_that_was_carried_out_waits_for_what_is_gone",
        "esper/runtime/beside/orders.py",
        "if held is None and commit.round <= self.round_applied and self._is_gone(ref):",
        "if held is None and commit.round < 0:",
        ("tests/test_beside.py::test_a_commit_that_the_trainer_has_carried_out_waits_for_nothing",),
    ),
    Mutant(
        "a_log_is_read_on_while_a_commit_waits_for_another",
        "esper/runtime/beside/orders.py",
        "any(ref.stream == log for ref in self.awaited())",
        "bool(self._waiting)",
        ("tests/test_orders.py::test_of_another_log_no_more_is_read_while_a_commit_waits",),
    ),
    Mutant(
        "a_new_runtime_does_not_know_whom_it_reads_for",
        "esper/runtime/beside/loop.py",
        "self.following.orders.incarnation = record.incarnation",
        "pass",
        ("tests/test_beside.py::test_an_eviction_is_known_by_who_began_before_its_first_heartbeat",),
    ),
    Mutant(
        "a_new_runtime_does_not_know_how_far_its_trainer_has_come",
        "esper/session/exchange.py",
        "beat.round_applied, beat.round_met = self.boundary.round_applied, self.boundary.round_met",
        "pass",
        ("tests/test_runtime_revived.py::test_it_knows_how_far_the_trainer_has_come_before_it_reads",),
    ),
    Mutant(
        "a_runtime_that_dies_of_a_recall_takes_it_along",
        "esper/session/exchange.py",
        "if (self.link.alive or self._start_anew(self.link)) and",
        "if self.link.alive and",
        (
            "tests/test_runtime_revived.py"
            "::test_what_was_decided_since_a_checkpoint_is_asked_of_the_next_one_where_one_dies_of_that",
        ),
    ),
    Mutant(
        "nobody_answers_for_a_trainer_that_voted_and_ended",
        "esper/runtime/beside/orders.py",
        "        return is_first\n",
        "        return False\n",
        (
            "tests/test_every_order.py"
            "::test_a_command_that_was_decided_for_the_trainer_before_it_is_answered_as_not_known",
        ),
    ),
    Mutant(
        "a_commit_that_is_said_once_more_is_answered_once_more",
        "esper/runtime/beside/orders.py",
        "if self._is_void(commit, delivery) or is_met:",
        "if self._is_void(commit, delivery):",
        ("tests/test_orders.py::test_a_commit_that_is_said_once_more_to_another_runtime_is_void",),
    ),
    Mutant(
        "a_commit_that_nobody_was_handed_in_time_is_answered_by_nobody",
        "esper/runtime/beside/orders.py",
        "return delivery.attempts > 1 or commit.round in self._proposals",
        "return delivery.attempts > 1",
        (
            f"{OWED}::test_what_was_decided_on_the_vote_of_a_trainer_that_ended_is_answered_though_none_had_read_it",
            f"{OWED}::test_also_where_the_next_runtime_ends_between_the_two_entries_of_that_round",
        ),
    ),
    Mutant(
        "what_is_read_again_must_be_fresh_once_more",
        "esper/runtime/beside/following.py",
        "opener.open if delivery.attempts == 1 else opener.open_again",
        "opener.open",
        (f"{OWED}::test_and_is_told_again_to_a_trainer_that_lives",),
    ),
    Mutant(
        "a_commit_of_a_leader_that_was_replaced_is_answered",
        "esper/runtime/beside/orders.py",
        "if commit.lease_token < self._succession.token or commit",
        "if commit",
        ("tests/test_every_order.py::test_in_any_order_all_ends_as_it_is_to[aborted by the next]",),
    ),
    Mutant(
        "old_copies_ahead_of_the_clock_are_the_newest_decisions",
        "esper/runtime/coordinator/lookback.py",
        "if number > counts[who] or not opened.clock_suspect:",
        "if number or counts:",
        (f"{LOOKBACK}::{COPIES}[one]",),
    ),
    Mutant(
        "as_many_old_copies_ahead_of_the_clock_as_are_looked_for_hide_what_lies_before",
        "esper/runtime/coordinator/lookback.py",
        "if len(dated) == num or",
        "if len(found) == num or",
        (f"{LOOKBACK}::{COPIES}[many]",),
    ),
    Mutant(
        "decisions_are_trimmed_for_old_copies_ahead_of_the_clock",
        "esper/runtime/operations/trimming.py",
        "isinstance(opened.message, Said) and not opened.clock_suspect else",
        "isinstance(opened.message, Said) else",
        ("tests/test_log_trimming.py::test_nor_are_copies_ahead_of_the_clock_of_what_is_older",),
    ),
)
