"""Every planted bug, and who finds it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SETTLE, CONSUMER, PENDING = "esper/bus/settle.lua", "esper/bus/consumer.py", "esper/bus/pending.py"
INBOX_TESTS, SETTLEMENT_TESTS = "tests/test_bus_inbox.py", "tests/test_bus_settlement.py"
RETRACE, AUDIT = "esper/runtime/retrace.py", "esper/runtime/audit.py"
REPLAY_TESTS, VERIFY_TESTS = "tests/test_replay_plan.py", "tests/test_verify.py"

MUTANTS = (
    # -- how entries are read ----------------------------------------------------------------------------------------
    Mutant(
        "acknowledged_before_the_effect",
        CONSUMER,
        '"COUNT", self._count, *block,',
        '"COUNT", self._count, "NOACK", *block,',
        (f"{INBOX_TESTS}::test_the_own_pending_list_is_emptied_first_after_a_restart",),
    ),
    Mutant(
        "group_begins_at_what_comes_next",
        CONSUMER,
        'self.source.group, "0", "MKSTREAM")',
        'self.source.group, "$", "MKSTREAM")',
        (f"{INBOX_TESTS}::test_entries_of_a_dead_consumer_are_taken_over",),
    ),
    Mutant(
        "group_counts_as_there_for_ever",
        CONSUMER,
        "self._lost, self._opened = error, False",
        "self._lost = error",
        (f"{INBOX_TESTS}::test_after_flushall_consumption_resumes_with_one_event",),
    ),
    Mutant(
        "own_pending_list_not_read_at_the_start",
        PENDING,
        "self.sweeping = True\n        self._cursor, self._last, self._claim_cursor",
        "self.sweeping = False\n        self._cursor, self._last, self._claim_cursor",
        (f"{INBOX_TESTS}::test_the_own_pending_list_is_emptied_first_after_a_restart",),
    ),
    Mutant(
        "own_pending_list_not_read_after_a_lost_reply",
        CONSUMER,
        "    def _interrupted(self) -> None:\n        self._rewound = True\n",
        "    def _interrupted(self) -> None:\n        return\n",
        (f"{INBOX_TESTS}::test_what_was_delivered_in_a_lost_reply_is_handed_over",),
    ),
    Mutant(
        "nothing_is_reclaimed",
        CONSUMER,
        "if self.pace.reclaim_after_ms is not None and self.surroundings.clock() >= self._reclaim_at_s:",
        "if self.pace.reclaim_after_ms is not None and self.surroundings.clock() < 0:",
        (f"{INBOX_TESTS}::test_entries_of_a_dead_consumer_are_taken_over",),
    ),
    Mutant(
        "nothing_is_reclaimed_while_the_stream_is_busy",
        CONSUMER,
        "return self.full and not (self.pending.sweeping or self._rewound or self._is_due())",
        "return self.full",
        ("tests/test_bus_protocol.py::test_a_stream_that_is_busy_without_end_keeps_nobody_from_taking_over",),
    ),
    Mutant(
        "reclaimed_from_consumers_at_work",
        PENDING,
        '"XAUTOCLAIM", stream, group, consumer, min_idle_ms,',
        '"XAUTOCLAIM", stream, group, consumer, 0,',
        (f"{INBOX_TESTS}::test_entries_of_a_consumer_that_is_at_work_are_left_to_it",),
    ),
    Mutant(
        "what_is_in_hand_is_handed_over_again",
        PENDING,
        "self._held.update(entry_ids)",
        "self._held.difference_update(entry_ids)",
        (f"{INBOX_TESTS}::test_what_is_in_hand_is_handed_over_again_only_when_asked_for",),
    ),
    Mutant(
        "poison_takes_its_neighbours_along",
        PENDING,
        "TOGETHER = 2",
        "TOGETHER = 1_000",
        (f"{INBOX_TESTS}::test_from_the_third_delivery_on_an_entry_comes_alone",),
    ),
    Mutant(
        "poison_is_tried_once_more",
        "esper/bus/delivery.py",
        "MAX_ATTEMPTS = 5",
        "MAX_ATTEMPTS = 6",
        ("tests/test_serve.py::test_a_message_that_kills_its_handler_five_times_is_dead_lettered_alone",),
    ),
    Mutant(
        "deleted_entries_stay_pending",
        PENDING,
        'yield Ask(("XACK", stream, group, *vanished))',
        "yield from ()",
        (f"{INBOX_TESTS}::test_an_entry_deleted_while_pending_is_counted_and_done_with",),
    ),
    # -- how they are settled ----------------------------------------------------------------------------------------
    Mutant(
        "settled_without_the_check_as_by_a_plain_multi",
        SETTLE,
        "  if stale then return {'stale', name, stale} end\n",
        "",
        (f"{SETTLEMENT_TESTS}::test_a_consumer_paused_past_its_reclaim_cannot_settle",),
    ),
    Mutant(
        "only_the_first_entry_is_checked",
        SETTLE,
        "local stale = not_ours(name, group, consumer, at + 1, at + length)",
        "local stale = not_ours(name, group, consumer, at + 1, at + 1)",
        (f"{SETTLEMENT_TESTS}::test_one_stale_entry_among_many_leaves_everything_unwritten",),
    ),
    Mutant(
        "settled_twice_after_a_lost_reply",
        SETTLE,
        "if known and string.sub(known, 1, #token) == token then",
        "if known and false then",
        (f"{SETTLEMENT_TESTS}::test_a_reply_that_is_lost_does_not_write_twice",),
    ),
    Mutant(
        "records_that_moved_on_are_overwritten",
        SETTLE,
        "then return {'stale', name, field} end",
        "then break end",
        (f"{SETTLEMENT_TESTS}::test_an_expectation_that_does_not_hold_refuses_the_whole",),
    ),
    Mutant(
        "fails_half_way_on_a_key_of_another_type",
        SETTLE,
        "if found ~= 'none' and found ~= wanted then return {'type', name, found, wanted} end",
        "",
        (f"{SETTLEMENT_TESTS}::test_a_key_of_the_wrong_type_is_named_and_nothing_is_written",),
    ),
    Mutant(
        "settled_but_not_acknowledged",
        SETTLE,
        "for i = 1, #acks do redis.call('XACK'",
        "for i = 2, #acks do redis.call('XACK'",
        (f"{SETTLEMENT_TESTS}::test_entries_of_several_streams_settle_together_with_what_is_written",),
    ),
    Mutant(
        "blind_retry_of_an_xadd",
        "esper/bus/publisher.py",
        '            ids = await self.redis.ask_all([("XADD", stream_key, "*", FIELD, sealed) for sealed in messages])',
        '            commands = [("XADD", stream_key, "*", FIELD, sealed) for sealed in messages]\n'
        "            try:\n                ids = await self.redis.ask_all(commands)\n"
        "            except Exception:  # noqa: BLE001\n                ids = await self.redis.ask_all(commands)",
        ("tests/test_bus_faults.py::test_an_xadd_whose_reply_is_lost_makes_one_entry",),
    ),
    # -- what is trimmed, and what is accepted -----------------------------------------------------------------------
    Mutant(
        "trimmed_above_what_is_pending",
        "esper/bus/trim.lua",
        "if facts['pending'] > 0 then id = redis.call('XPENDING', KEYS[1], facts['name'])[2] end",
        "",
        ("tests/test_bus_trim.py::test_nothing_unread_or_pending_in_any_group_is_trimmed",),
    ),
    Mutant(
        "trimmed_while_a_group_is_missing",
        "esper/bus/trim.lua",
        "if not there[ARGV[i]] then return 0 end",
        "",
        ("tests/test_bus_trim.py::test_while_a_group_that_must_be_there_is_missing_nothing_goes",),
    ),
    Mutant(
        "a_server_that_evicts_is_accepted",
        "esper/bus/connect.py",
        'if policy != "noeviction":',
        'if policy == "no policy":',
        ("tests/test_bus_faults.py::test_a_policy_that_may_evict_is_refused_at_start",),
    ),
    # -- what aggregators and ranks make of it -----------------------------------------------------------------------
    Mutant(
        "packets_sent_again_are_folded_again",
        "esper/narset/sequences.py",
        "        if number <= self.mark:\n            return False\n",
        "        if number <= self.mark:\n            return True\n",
        ("tests/test_aggregation_exact.py::test_packets_sent_again_in_another_frame_count_once_also_after_a_restart",),
    ),
    Mutant(
        "windows_of_packets_are_not_kept_with_the_aggregate",
        "esper/runtime/aggregate.py",
        "settlement.put(self.place.record, self.tier.changed())",
        "self.tier.changed()",
        ("tests/test_aggregation_exact.py::test_packets_sent_again_in_another_frame_count_once_also_after_a_restart",),
    ),
    Mutant(
        "two_aggregators_overwrite_each_others_record",
        "esper/runtime/aggregate.py",
        "settlement.expect(self.place.record, VERSION, expected)",
        "pass",
        ("tests/test_aggregation_exact.py::test_three_aggregators_of_one_region_fold_each_packet_once",),
    ),
    Mutant(
        "a_later_decision_of_a_round_counts_too",
        "esper/runtime/orders.py",
        "return decision.round <= self._decided or",
        "return decision.round < self._decided or",
        ("tests/test_orders.py::test_the_first_decision_of_a_round_counts",),
    ),
    Mutant(
        "a_leader_that_was_replaced_is_obeyed",
        "esper/leyline/succession.py",
        "if said.lease_token < self.token:",
        "if said.lease_token < 0:",
        ("tests/test_leader_lease.py::test_a_worker_obeys_no_leader_that_was_replaced",),
    ),
    Mutant(
        "a_lease_runs_out_though_its_leader_is_at_work",
        "esper/runtime/lease.py",
        "if version != self._seen or now_s - began_s > LOOK_S:",
        "if self._seen is None:",
        ("tests/test_leader_lease.py::test_a_leader_that_renews_its_lease_keeps_it_and_a_silent_one_loses_it",),
    ),
    Mutant(
        "what_a_replaced_leader_has_read_is_lost",
        "esper/bus/consumer.py",
        "if not self._sweeps_at_s and self.pace.sweep_every_s is not None:",
        "if False:",
        ("tests/test_leader_lease.py::test_what_a_replaced_leader_has_read_meanwhile_comes_to_the_new_one",),
    ),
    Mutant(
        "entries_are_acknowledged_before_the_round_is_applied",
        "esper/runtime/orders.py",
        "self._to_ack[decision.round] = ended",
        "settled += ended",
        ("tests/test_orders.py::test_a_round_applied_settles_its_decision_and_every_entry_judged",),
    ),
    # -- what is believed --------------------------------------------------------------------------------------------
    Mutant(
        "seal_not_checked_once_its_producer_is_known",
        "esper/leyline/seal.py",
        "            or not hmac.compare_digest(route.mac.digest(data[:-SEAL_BYTES]), data[-SEAL_BYTES:])\n",
        "",
        ("tests/test_routes.py::test_met_before_or_not_the_verdict_is_the_same",),
    ),
    Mutant(
        "verified_after_it_is_parsed",
        "esper/leyline/seal.py",
        "        self._check_seal(data, parts, mac)\n        check_context(",
        "        type_of(header.kind).FromString(data[parts.body_start : parts.body_end])\n"
        "        self._check_seal(data, parts, mac)\n        check_context(",
        ("tests/test_envelope.py::test_a_body_that_is_not_authentic_is_never_parsed",),
    ),
    Mutant(
        "freshness_by_the_readers_clock",
        "esper/leyline/seal.py",
        "at_ms = now_ms if clock_suspect else entry_ms",
        "at_ms = now_ms",
        ("tests/test_envelope.py::test_a_message_is_fresh_within_a_minute_of_its_entry",),
    ),
    Mutant(
        "poisoned_clock_of_a_stream_is_believed",
        "esper/leyline/seal.py",
        "at_ms = now_ms if clock_suspect else entry_ms",
        "at_ms = entry_ms",
        ("tests/test_envelope.py::test_an_entry_ahead_of_the_servers_clock_is_aged_by_the_reading_and_marked",),
    ),
    Mutant(
        "a_remembered_key_outlives_its_retirement",
        "esper/leyline/seal.py",
        "            or not route.validity.not_before_ns <= at_ms * MS_NS < route.validity.not_after_ns\n",
        "",
        ("tests/test_routes.py::test_a_key_that_is_retired_is_refused_though_its_producer_was_met",),
    ),
    Mutant(
        "keys_taken_up_anew_are_not_looked_at",
        "esper/leyline/seal.py",
        "            route.keyring_version != self._keyring.version\n            or deadline_kind is None",
        "            deadline_kind is None",
        ("tests/test_live_keys.py::test_a_key_that_is_retired_while_in_use_opens_and_seals_no_more",),
    ),
    Mutant(
        "the_domain_is_not_part_of_the_key",
        "esper/leyline/derive.py",
        "(_PROTOCOL, run_id, domain.name.lower(), role.value))",
        "(_PROTOCOL, run_id, role.value))",
        ("tests/test_envelope.py::test_derived_keys_differ_by_run_domain_and_role",),
    ),
    Mutant(
        "messages_for_another_target_are_opened",
        "esper/leyline/checks.py",
        "if header.target not in targets:",
        "if header.target in targets and False:",
        ("tests/test_envelope.py::test_a_message_for_another_target_is_out_of_context",),
    ),
    Mutant(
        "a_replay_counts_as_a_redelivery",
        "esper/leyline/replay.py",
        "if seen is not None and seen != record:",
        "if seen is not None and seen[16:] != record[16:]:",
        ("tests/test_replay.py::test_the_same_bytes_under_another_entry_are_replayed",),
    ),
    Mutant(
        "what_was_seen_is_not_persisted",
        "esper/leyline/replay.py",
        "                fields.update((field_name(name, slot), value) for slot, value in slots.items())\n",
        "",
        ("tests/test_replay.py::test_a_restart_forgets_nothing_that_was_persisted",),
    ),
    Mutant(
        "a_late_first_delivery_is_taken_for_a_replay",
        "esper/leyline/window.py",
        "        if at % 2 == 0:\n            return BELOW\n",
        "        return BELOW\n",
        ("tests/test_replay.py::test_below_the_window_what_was_met_is_replayed_and_what_was_not_is_new",),
    ),
    # -- what takes effect once --------------------------------------------------------------------------------------
    Mutant(
        "a_message_added_twice_takes_effect_twice",
        "esper/runtime/serve.py",
        "once=inbox.shared",
        "once=False",
        ("tests/test_serve.py::test_a_message_added_twice_takes_effect_once_though_two_workers_meet_one_entry_each",),
    ),
    Mutant(
        "effects_of_two_workers_are_not_compared",
        SETTLE,
        "if #repeats > 1 then return repeats end",
        "",
        ("tests/test_serve.py::test_a_message_added_twice_takes_effect_once_though_two_workers_meet_one_entry_each",),
    ),
    Mutant(
        "nothing_is_handed_back_at_the_end",
        "esper/runtime/serve.py",
        "    await inbox.release()\n",
        "",
        ("tests/test_serve.py::test_a_busy_loop_that_is_stopped_hands_back_what_it_read_ahead",),
    ),
    Mutant(
        "a_batch_in_hand_when_cancelled_is_forgotten",
        "esper/bus/inbox.py",
        "            self.consumer.abandon(self._out)\n",
        "            pass\n",
        ("tests/test_bus_reads.py::test_a_batch_in_hand_when_the_task_was_cancelled_is_handed_over_again",),
    ),
    Mutant(
        "a_coordinator_that_was_replaced_goes_on",
        "esper/runtime/windows.py",
        "            raise ReplacedError(self.hash_key)\n",
        "            pass\n",
        ("tests/test_coordinator.py::test_a_coordinator_that_was_replaced_can_decide_nothing_more",),
    ),
    Mutant(
        "what_was_judged_before_redis_fell_back_is_judged_again",
        "esper/tamiyo/coordinator.py",
        "        if begins_anew:\n",
        "        if True:\n",
        (
            "tests/test_coordinator_lost.py"
            "::test_what_was_judged_before_redis_fell_back_is_not_judged_again_and_its_decision_is_said_again",
        ),
    ),
    Mutant(
        "a_command_that_is_named_again_is_carried_out_again",
        "esper/tolaria/boundary.py",
        "if opened.ref.envelope_digest not in self._receipts]",
        "if opened.ref.envelope_digest is not None]",
        (
            "tests/test_boundary.py::test_a_command_that_a_later_round_names_again_is_answered_and_not_carried_out_again",
        ),
    ),
    Mutant(
        "windows_are_not_written_anew",
        "esper/runtime/windows.py",
        "**gone, **self._settled, **settlement",
        "**gone, **settlement",
        (
            "tests/test_persisted_windows.py"
            "::test_where_effects_are_elsewhere_a_redis_that_fell_back_is_told_what_was_seen",
        ),
    ),
    # -- what a rollback undid, what a resume lacks, what is trimmed -------------------------------------------------
    Mutant(
        "what_was_undone_still_stands",
        "esper/tolaria/checkpoints/store.py",
        "return [path for path in self.paths() if path.name not in names]",
        "return self.paths()",
        (
            "tests/test_checkpoint_undone.py"
            "::test_killed_between_a_rollback_and_the_next_checkpoint_it_resumes_from_what_was_restored",
        ),
    ),
    Mutant(
        "a_rollback_to_memory_is_not_written_down",
        "esper/tolaria/states.py",
        "self.deep.undo(snapshot_step, step)",
        "pass",
        ("tests/test_checkpoint_undone.py::test_gone_back_to_memory_it_resumes_from_a_checkpoint_before_it",),
    ),
    Mutant(
        "what_a_checkpoint_had_met_is_not_taken_up",
        "esper/runtime/beside.py",
        "self.windows.absorb(begin.windows)",
        "pass",
        ("tests/system/test_resumed_commands.py::test_after_a_loss_of_history_what_the_checkpoint_had_met_is_refused",),
    ),
    Mutant(
        "logs_are_trimmed_without_an_archive",
        "esper/runtime/trimming.py",
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
        "esper/tolaria/rows.py",
        "return self._waiting[min(met, key=rank)].popleft() if met else None",
        "return self._waiting[min(met, key=rank)].pop() if met else None",
        ("tests/test_shedding.py::test_the_oldest_debug_row_goes_first_then_the_oldest_of_the_next_level",),
    ),
    Mutant(
        "a_turn_that_another_has_is_given_back",
        "esper/bus/turns.py",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end",
        "redis.call('DEL', KEYS[1])",
        ("tests/test_turns.py::test_a_turn_that_another_has_by_now_is_left_to_it",),
    ),
    # -- how a run is run again ------------------------------------------------------------------------------------
    Mutant(
        "what_died_with_a_process_is_replayed",
        RETRACE,
        "order.commit.effective_step <= began.first_step",
        "order.commit.effective_step > 0",
        (f"{REPLAY_TESTS}::test_what_died_with_a_process_is_left_out_but_for_what_the_next_one_carried_out_again",),
    ),
    Mutant(
        "a_pause_is_replayed",
        RETRACE,
        "if not _holds_run(opened)]",
        "]",
        (f"{REPLAY_TESTS}::test_pauses_and_what_no_rank_lived_to_see_are_left_out",),
    ),
    Mutant(
        "gates_are_judged_anew_on_a_replay",
        "esper/session/rulings.py",
        "passed = receipt.status == APPLIED",
        "passed = result.passed",
        ("tests/test_replay_session.py::test_a_gate_lets_through_what_it_let_through_then",),
    ),
    Mutant(
        "a_commits_digest_goes_unchecked",
        AUDIT,
        "commit.requests) != commit.digest:",
        'commit.requests) == b"":',
        (f"{VERIFY_TESTS}::test_a_commit_by_a_holder_of_the_key_that_does_not_cover_what_it_names_is_found",),
    ),
    Mutant(
        "gaps_go_unseen",
        AUDIT,
        "        if sequence != expected:",
        "        if sequence < expected:",
        (f"{VERIFY_TESTS}::test_an_entry_that_is_removed_with_the_last_line_put_right_leaves_a_gap",),
    ),
)
