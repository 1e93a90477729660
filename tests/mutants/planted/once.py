"""Planted bugs: what takes effect once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SETTLE = "esper/bus/group/settle.lua"

MUTANTS = (
    Mutant(
        "a_message_added_twice_takes_effect_twice",
        "esper/runtime/serving/loop.py",
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
        "esper/runtime/serving/loop.py",
        "    await inbox.release()\n",
        "",
        ("tests/test_serve.py::test_a_busy_loop_that_is_stopped_hands_back_what_it_read_ahead",),
    ),
    Mutant(
        "a_batch_in_hand_when_cancelled_is_forgotten",
        "esper/bus/group/inbox.py",
        "            self.consumer.abandon(self._out)\n",
        "            pass\n",
        ("tests/test_bus_reads.py::test_a_batch_in_hand_when_the_task_was_cancelled_is_handed_over_again",),
    ),
    Mutant(
        "a_coordinator_that_was_replaced_goes_on",
        "esper/runtime/serving/windows.py",
        "            raise ReplacedError(self.hash_key)\n",
        "            pass\n",
        ("tests/test_coordinator.py::test_a_coordinator_that_was_replaced_can_decide_nothing_more",),
    ),
    Mutant(
        "what_was_judged_before_redis_fell_back_is_judged_again",
        "esper/tamiyo/coordinator.py",
        "        self._commands.fall_back(newest)\n",
        '        self._commands.fall_back({"commands": "0-0", "optimizer": "0-0"})\n',
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
        "esper/runtime/serving/windows.py",
        "**gone, **self._settled, **settlement",
        "**gone, **settlement",
        (
            "tests/test_persisted_windows.py"
            "::test_where_effects_are_elsewhere_a_redis_that_fell_back_is_told_what_was_seen",
        ),
    ),
)
