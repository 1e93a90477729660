"""Planted bugs: how entries are settled, trimmed and accepted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SETTLE = "esper/bus/group/settle.lua"
WAITS_FOR_AN_ID = "test_a_settlement_waits_out_a_stream_without_an_id_left_and_writes_nothing_twice"
SETTLEMENT_TESTS = "tests/test_bus_settlement.py"

MUTANTS = (
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
        "half_written_where_a_stream_has_no_id_left",
        SETTLE,
        "if not has_ids(name) then return",
        "if false then return",
        (f"{SETTLEMENT_TESTS}::{WAITS_FOR_AN_ID}",),
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
        '            [entry_id] = await self.redis.ask_all((("XADD", stream_key, "*", FIELD, sealed),))',
        '            commands = (("XADD", stream_key, "*", FIELD, sealed),)\n'
        "            try:\n                [entry_id] = await self.redis.ask_all(commands)\n"
        "            except Exception:  # noqa: BLE001\n"
        "                [entry_id] = await self.redis.ask_all(commands)",
        ("tests/test_bus_faults.py::test_an_xadd_whose_reply_is_lost_makes_one_entry",),
    ),
    # -- what is trimmed, and what is accepted -----------------------------------------------------------------------
    Mutant(
        "trimmed_above_what_is_pending",
        "esper/bus/upkeep/trim.lua",
        "if facts['pending'] > 0 then id = redis.call('XPENDING', KEYS[1], facts['name'])[2] end",
        "",
        ("tests/test_bus_trim.py::test_nothing_unread_or_pending_in_any_group_is_trimmed",),
    ),
    Mutant(
        "trimmed_while_a_group_is_missing",
        "esper/bus/upkeep/trim.lua",
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
)
