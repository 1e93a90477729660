"""Every planted bug, and who finds it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SETTLE, CONSUMER, PENDING = "esper/bus/settle.lua", "esper/bus/consumer.py", "esper/bus/pending.py"
INBOX_TESTS, SETTLEMENT_TESTS = "tests/test_bus_inbox.py", "tests/test_bus_settlement.py"

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
        "esper/bus/publishing.py",
        '    reply: bytes = yield Ask(("XADD", stream, "*", FIELD, sealed))\n',
        '    try:\n        reply: bytes = yield Ask(("XADD", stream, "*", FIELD, sealed))\n'
        '    except Exception:  # noqa: BLE001\n        reply = yield Ask(("XADD", stream, "*", FIELD, sealed))\n',
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
        "return number <= self._decided or",
        "return number < self._decided or",
        ("tests/test_orders.py::test_the_first_decision_of_a_round_counts",),
    ),
    Mutant(
        "entries_are_acknowledged_before_the_round_is_applied",
        "esper/runtime/orders.py",
        "self._to_ack[decision.round] = ended",
        "settled += ended",
        ("tests/test_orders.py::test_a_round_applied_settles_its_decision_and_every_entry_judged",),
    ),
)
