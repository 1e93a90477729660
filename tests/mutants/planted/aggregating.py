"""Planted bugs: what aggregators and ranks make of entries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "packets_sent_again_are_folded_again",
        "esper/narset/sequences.py",
        "        if number <= self.mark:\n            return False\n",
        "        if number <= self.mark:\n            return True\n",
        ("tests/test_aggregation_exact.py::test_packets_sent_again_in_another_frame_count_once_also_after_a_restart",),
    ),
    Mutant(
        "windows_of_packets_are_not_kept_with_the_aggregate",
        "esper/runtime/aggregator/loop.py",
        "settlement.put(self.target.record, self.tier.changed())",
        "self.tier.changed()",
        ("tests/test_aggregation_exact.py::test_packets_sent_again_in_another_frame_count_once_also_after_a_restart",),
    ),
    Mutant(
        "two_aggregators_overwrite_each_others_record",
        "esper/runtime/aggregator/loop.py",
        "settlement.expect(self.target.record, VERSION, expected)",
        "pass",
        ("tests/test_aggregation_exact.py::test_three_aggregators_of_one_region_fold_each_packet_once",),
    ),
    Mutant(
        "numbers_of_a_region_begin_anew_where_its_record_alone_is_lost",
        "esper/narset/regional.py",
        "        self.state.pass_used()\n",
        "",
        ("tests/test_lost_state.py::test_what_a_region_folds_after_its_record_was_deleted_counts",),
    ),
    Mutant(
        "an_aggregator_whose_record_is_lost_has_met_nothing",
        "esper/runtime/aggregator/lost_state.py",
        "fields = {**self._known, LOST:",
        "fields = {LOST:",
        ("tests/test_lost_state.py::test_what_a_living_process_has_folded_before_is_not_folded_again",),
    ),
    Mutant(
        "what_was_met_before_a_record_was_lost_counts_as_missing",
        "esper/narset/state.py",
        "SequenceWindow(begins_anywhere=self.lost_ms > 0)",
        "SequenceWindow()",
        ("tests/test_lost_state.py::test_of_what_a_region_met_before_its_record_was_lost_nothing_counts_as_missing",),
    ),
    Mutant(
        "a_later_decision_of_a_round_counts_too",
        "esper/runtime/beside/orders.py",
        "return decision.round <= self._decided or",
        "return decision.round < self._decided or",
        ("tests/test_orders.py::test_the_first_decision_of_a_round_counts",),
    ),
    Mutant(
        "a_commit_waits_forever_for_an_entry_that_is_refused",
        "esper/runtime/beside/orders.py",
        """            alike.pop(next(iter(alike)))
        return self._complete()
""",
        """            alike.pop(next(iter(alike)))
        return [], []
""",
        ("tests/test_orders.py::test_a_commit_does_not_wait_for_an_entry_that_is_refused",),
    ),
    Mutant(
        "a_leader_that_was_replaced_is_obeyed",
        "esper/leyline/succession.py",
        "if said.lease_token < self.token:",
        "if said.lease_token < 0:",
        ("tests/test_leader_lease.py::test_a_worker_obeys_no_leader_that_was_replaced",),
    ),
    Mutant(
        "a_process_that_was_evicted_is_heard_again",
        "esper/tamiyo/roster.py",
        "if heartbeat.incarnation in self._evicted:",
        "if False:",
        (
            "tests/test_eviction.py::test_the_processes_that_come_after_them_are_another_roster_and_nothing_is_heard_of_the_old_ones",
        ),
    ),
    Mutant(
        "who_takes_the_place_of_an_evicted_process_ends_too",
        "esper/runtime/beside/orders.py",
        "if (self.worker, self.incarnation) in ended:",
        "if self.worker in [each.worker for each in abort.evicted]:",
        ("tests/test_eviction.py::test_a_runtime_ends_the_process_that_is_named_and_no_other",),
    ),
    Mutant(
        "a_runtime_beats_for_a_trainer_that_was_stopped",
        "esper/runtime/beside/heartbeat_repeater.py",
        'STOPPED = "TtZX"',
        'STOPPED = "ZX"',
        ("tests/test_heartbeat_repeater.py::test_for_one_that_was_stopped_nobody_speaks_until_it_goes_on",),
    ),
    Mutant(
        "a_resumed_rank_does_not_know_who_led_before",
        "esper/runtime/beside/recall.py",
        "await self._know_past(asked.after, orders)",
        "pass",
        (
            "tests/test_leader_lease.py"
            "::test_a_resumed_rank_recalls_nothing_of_a_leader_that_was_replaced_before_its_checkpoint",
        ),
    ),
    Mutant(
        "a_lease_runs_out_though_its_leader_is_at_work",
        "esper/runtime/coordinator/lease.py",
        "if version != self._seen or now_s - began_s > LOOK_S:",
        "if self._seen is None:",
        ("tests/test_leader_lease.py::test_a_leader_that_renews_its_lease_keeps_it_and_a_silent_one_loses_it",),
    ),
    Mutant(
        "what_a_replaced_leader_has_read_is_lost",
        "esper/bus/group/consumer.py",
        "if not self._sweeps_at_s and self.pace.sweep_every_s is not None:",
        "if False:",
        ("tests/test_leader_lease.py::test_what_a_replaced_leader_has_read_meanwhile_comes_to_the_new_one",),
    ),
    Mutant(
        "what_a_replaced_leader_has_read_comes_behind_what_came_later",
        "esper/bus/group/pending.py",
        "if (yield from self._page(self._cursor, before(rows[0][0].decode()))):",
        "if False:",
        (
            "tests/test_leader_lease.py"
            "::test_a_command_that_a_replaced_leader_has_read_is_judged_before_those_that_came_later",
        ),
    ),
    Mutant(
        "what_is_in_hand_counts_as_read_by_another_leader",
        "esper/bus/group/pending.py",
        "        self._cursor = rows[-1][0].decode()\n        return True\n",
        "        return True\n",
        ("tests/test_leader_lease.py::test_where_no_other_leader_reads_each_entry_is_handed_over_once",),
    ),
    Mutant(
        "entries_are_acknowledged_before_the_round_is_applied",
        "esper/runtime/beside/orders.py",
        "self._to_ack[decision.round] = ended",
        "settled += ended",
        ("tests/test_orders.py::test_a_round_applied_settles_its_decision_and_every_entry_judged",),
    ),
    Mutant(
        "what_was_met_before_is_done_with_though_redis_has_lost_it",
        "esper/runtime/aggregator/loop.py",
        "        if self._hand or aggregates:  #",
        "        if aggregates:  #",
        (
            "tests/test_aggregation_fell_back.py"
            "::test_what_it_met_before_and_redis_has_lost_counts_though_nothing_else_comes",
        ),
    ),
    Mutant(
        "what_is_read_while_a_lost_lease_is_answered_is_taken_in_twice",
        "esper/runtime/aggregator/loop.py",
        """            for inbox in self.inboxes:
                await inbox.absolve()
            self._generation += 1""",
        """            self._generation += 1
            for inbox in self.inboxes:
                await inbox.absolve()
            self._generation += 0""",
        ("tests/test_aggregation_fell_back.py::test_what_is_read_while_a_lost_lease_is_answered_is_taken_in_once",),
    ),
    Mutant(
        "one_server_acknowledges_an_aggregate_in_a_call_of_its_own",
        "esper/runtime/aggregator/loop.py",
        'return beside(stream, "") if self.outbox.redis.by_slot else self._slot',
        'return beside(stream, "")',
        (
            "tests/test_aggregation_fell_back.py"
            "::test_nothing_is_acknowledged_on_a_server_that_has_lost_what_it_was_counted_in",
        ),
    ),
    Mutant(
        "a_cluster_is_asked_to_acknowledge_in_the_call_that_counts",
        "esper/runtime/aggregator/loop.py",
        'return beside(stream, "") if self.outbox.redis.by_slot else self._slot',
        "return self._slot",
        (
            "tests/test_aggregation_exact.py"
            "::test_a_global_aggregator_killed_before_it_acknowledges_folds_nothing_twice",
        ),
    ),
)
