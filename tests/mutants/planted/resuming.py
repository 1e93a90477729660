"""Planted bugs: what a rollback undid, what a resume lacks, what is trimmed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "what_was_undone_still_stands",
        "esper/tolaria/checkpoints/store.py",
        "return [path for path in self.paths() if path.name not in names]",
        "return self.paths()",
        (
            "tests/long/test_checkpoint_undone.py"
            "::test_killed_between_a_rollback_and_the_next_checkpoint_it_resumes_from_what_was_restored",
        ),
    ),
    Mutant(
        "a_rollback_to_memory_is_not_written_down",
        "esper/tolaria/state/states.py",
        "self.deep.undo(snapshot_step, step)",
        "pass",
        ("tests/long/test_checkpoint_undone.py::test_gone_back_to_memory_it_resumes_from_a_checkpoint_before_it",),
    ),
    Mutant(
        "what_a_checkpoint_had_met_is_not_taken_up",
        "esper/runtime/beside/loop.py",
        "self.windows.absorb(begin.windows)",
        "pass",
        ("tests/system/test_resumed_commands.py::test_after_a_loss_of_history_what_the_checkpoint_had_met_is_refused",),
    ),
    Mutant(
        "logs_are_trimmed_without_an_archive",
        "esper/runtime/operations/trimming.py",
        "await self._archived(name, floor)",
        "pass",
        ("tests/test_log_trimming.py::test_below_the_lowest_checkpoint_of_any_rank_all_is_archived_and_trimmed",),
    ),
    Mutant(
        "rows_of_a_table_met_before_are_folded_again",
        "esper/narset/regional.py",
        "table = table_of(frame, new)",
        "table = table_of(frame, range(frame.first_sequence, frame.first_sequence + num_rows))",
        ("tests/test_disorder.py::test_a_table_sent_again_with_more_rows_counts_only_those",),
    ),
    Mutant(
        "a_packet_is_folded_in_whatever_region_it_is_met",
        "esper/narset/regional.py",
        "self._check(header.target)",
        "pass",
        ("tests/test_disorder.py::test_a_packet_sealed_for_another_region_is_refused",),
    ),
    Mutant(
        "the_newest_row_of_a_level_is_shed",
        "esper/tolaria/rows/rows.py",
        "return self._waiting[min(met, key=rank)].popleft()",
        "return self._waiting[min(met, key=rank)].pop()",
        ("tests/test_shedding.py::test_the_oldest_debug_row_goes_first_then_the_oldest_of_the_next_level",),
    ),
    Mutant(
        "what_follows_the_last_step_is_told_by_nobody",
        "esper/session/exchange.py",
        "            self.rows.tell_rest(step, time.time_ns())\n",
        "            self.rows.events.take()\n",
        ("tests/test_dropped_events.py::test_what_comes_after_the_last_step_is_told",),
    ),
    Mutant(
        "a_packet_with_more_than_values_counts_as_plain",
        "esper/leyline/validate/telemetry.py",
        "        _events(events)\n        names = None\n",
        "        _events(events)\n",
        ("tests/test_plain_packets.py::test_no_names_are_said_where_a_packet_is_to_be_looked_at",),
    ),
    Mutant(
        "a_turn_that_another_has_is_given_back",
        "esper/bus/turns.py",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end",
        "redis.call('DEL', KEYS[1])",
        ("tests/test_turns.py::test_a_turn_that_another_has_by_now_is_left_to_it",),
    ),
    Mutant(
        "what_others_go_on_by_is_left_out_by_a_replica_that_resumes",
        "esper/runtime/beside/following.py",
        "if self.inherits and self.orders.inherit(decision, delivery):",
        "if self.inherits and decision.round < 0:",
        (
            "tests/test_inherited.py::test_it_takes_effect_at_its_step_whatever_is_read_first",
            "tests/test_inherited.py::test_a_runtime_that_is_killed_meanwhile_lets_it_be_answered_once",
        ),
    ),
    Mutant(
        "an_order_that_is_told_again_is_carried_out_again",
        "esper/session/exchange.py",
        "for order in orders if order.commit.round not in self.boundary.again)",
        "for order in orders)",
        ("tests/test_inherited.py::test_a_trainer_that_has_begun_takes_one_more_order_once",),
    ),
)
