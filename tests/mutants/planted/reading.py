"""Planted bugs: how entries are read."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONSUMER = "esper/bus/group/consumer.py"
PENDING = "esper/bus/group/pending.py"
POISON_TESTS = "tests/test_poison_tried_apart.py"
INBOX_TESTS = "tests/test_bus_inbox.py"
NAMES_TESTS = "tests/test_consumer_names.py::test_an_aggregator_that_is_started_again_reads_under_another_name"

MUTANTS = (
    Mutant(
        "acknowledged_before_the_effect",
        CONSUMER,
        '"COUNT", str(self._count), *block,',
        '"COUNT", str(self._count), "NOACK", *block,',
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
        "reclaimed_from_the_beginning_of_the_list_each_time",
        PENDING,
        "self._claim_cursor = reply[0].decode()",
        "self._claim_cursor = BEGIN",
        (f"{INBOX_TESTS}::test_entries_of_a_dead_consumer_are_taken_over",),
    ),
    Mutant(
        "each_incarnation_reads_under_the_name_of_the_one_before",
        "workers/regional.py",
        'consumer = f"{chosen.name}-{token_hex(4)}"',
        "consumer = chosen.name",
        (f"{NAMES_TESTS}[regional]",),
    ),
    Mutant(
        "each_incarnation_of_the_global_tier_reads_under_the_name_of_the_one_before",
        "workers/global_.py",
        'consumer = f"{chosen.name}-{token_hex(4)}"',
        "consumer = chosen.name",
        (f"{NAMES_TESTS}[global]",),
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
        "str(min_idle_ms),",
        '"0",',
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
        "esper/bus/group/delivery.py",
        "TOGETHER = 2",
        "TOGETHER = 1_000",
        (f"{INBOX_TESTS}::test_from_the_third_delivery_on_an_entry_comes_alone",),
    ),
    Mutant(
        "poison_is_tried_once_more",
        "esper/bus/group/delivery.py",
        "MAX_ATTEMPTS = 5",
        "MAX_ATTEMPTS = 6",
        ("tests/test_serve.py::test_a_message_that_kills_its_handler_five_times_is_dead_lettered_alone",),
    ),
    Mutant(
        "what_waits_to_be_tried_alone_counts_as_tried",
        "esper/bus/group/inbox.py",
        "self.pending.apart = True",
        "self.pending.apart = False",
        (f"{POISON_TESTS}::test_what_aggregators_that_live_were_too_slow_for_is_folded_at_last",),
    ),
    Mutant(
        "a_suspect_is_never_counted_as_tried",
        PENDING,
        "return bool((yield from self._taken(rows, {delivery.entry_id: delivery.attempts})))",
        "return True",
        (f"{POISON_TESTS}::test_a_suspect_that_is_gone_is_not_tried",),
    ),
    Mutant(
        "a_suspect_is_tried_beside_what_is_in_hand",
        "esper/runtime/aggregator/loop.py",
        "if (self._hand or self._refused) and not await self.settle():",
        "if (self._hand or self._refused) and False:",
        (f"{POISON_TESTS}::test_what_is_in_hand_is_settled_before_a_suspect_is_tried",),
    ),
    Mutant(
        "a_suspect_that_another_took_over_is_tried",
        "esper/runtime/aggregator/loop.py",
        "if await self._sources_by_stream[delivery.stream].begin(delivery):",
        "if await self._sources_by_stream[delivery.stream].begin(delivery) or True:",
        (f"{POISON_TESTS}::test_what_another_took_over_meanwhile_is_left_to_it",),
    ),
    Mutant(
        "a_lost_lease_counts_as_a_failure",
        "esper/bus/group/absolve.lua",
        "row[4] - 1",
        "row[4]",
        (f"{POISON_TESTS}::test_a_lost_lease_takes_nothing_from_the_chances_of_an_entry",),
    ),
    Mutant(
        "whoever_lost_a_lease_gets_it_back",
        "esper/bus/group/absolve.lua",
        "stream, group, row[2], 0,",
        "stream, group, 'paused', 0,",
        (f"{POISON_TESTS}::test_a_lost_lease_takes_nothing_from_the_chances_of_an_entry",),
    ),
    Mutant(
        "what_never_ends_is_tried_for_ever",
        "esper/bus/group/absolve.lua",
        " and row[4] <= most then",
        " then",
        (f"{POISON_TESTS}::test_what_never_ends_within_its_lease_alone_ends_as_poison",),
    ),
    Mutant(
        "deleted_entries_stay_pending",
        PENDING,
        'yield Ask(("XACK", stream, group, *vanished))',
        "yield from ()",
        (f"{INBOX_TESTS}::test_an_entry_deleted_while_pending_is_counted_and_done_with",),
    ),
    Mutant(
        "an_answer_that_is_in_the_socket_is_given_up",
        "esper/bus/client/deadline.py",
        "        if looked is waiter:\n",
        "        if self._end <= now:\n",
        ("tests/test_bus_deadlines.py::test_an_answer_of_which_only_the_beginning_had_come_is_taken_too",),
    ),
    Mutant(
        "a_command_is_given_up_by_the_timer_of_the_one_before",
        "esper/bus/client/deadline.py",
        "        elif self._end <= now:\n",
        "        elif True:\n",
        ("tests/test_bus_deadlines.py::test_a_younger_wait_has_the_whole_of_its_time_and_no_more",),
    ),
    Mutant(
        "the_timer_of_commands_does_not_go_back_to_sleep",
        "esper/bus/client/deadline.py",
        "            self._sleep(self._end)\n",
        "            pass\n",
        ("tests/test_bus_deadlines.py::test_a_younger_wait_has_the_whole_of_its_time_and_no_more",),
    ),
)
