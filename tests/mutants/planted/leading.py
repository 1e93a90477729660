"""Planted bugs: what a coordinator makes of rounds, of those that come and go, and of what leaders before it said."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a_new_leader_counts_as_judged_what_its_log_has_lost",
        "esper/runtime/coordinator/loop.py",
        "self.rule.on_history_lost((), await self._newest(), self._now_ns(), again=False)",
        "pass",
        ("tests/test_commands_lost.py::test_what_is_added_to_a_log_that_is_gone_is_judged_by_the_next_leader_too",),
    ),
    Mutant(
        "what_was_decided_is_said_again_though_it_is_there",
        "esper/tamiyo/coordinator.py",
        "self._newest_decisions.again(self._roster, self.barrier) if again else []",
        "self._newest_decisions.again(self._roster, self.barrier)",
        ("tests/test_rounds_lost.py::test_nothing_is_said_again_where_the_decisions_are_there",),
    ),
    Mutant(
        "a_stream_that_is_gone_alone_is_not_missed",
        "esper/runtime/coordinator/loop.py",
        '                await self._recover("in part")\n',
        "                pass\n",
        (
            "tests/test_commands_lost.py"
            "::test_what_is_added_to_a_log_that_was_deleted_is_judged_though_nothing_was_in_hand",
        ),
    ),
    Mutant(
        "what_was_read_before_a_loss_and_came_behind_it_is_not_looked_for",
        "esper/runtime/coordinator/loop.py",
        "        await self._look_for_what_is_in_doubt()\n",
        "",
        ("tests/test_commands_lost.py::test_a_command_that_was_read_and_lost_before_it_was_looked_at_is_refused",),
    ),
    Mutant(
        "whom_nobody_could_hear_counts_as_at_its_boundary",
        "esper/tamiyo/roster.py",
        "            member.heard_ns = now_ns\n        self._heard",
        "            member.heard_ns = member.spoke_ns = now_ns\n        self._heard",
        ("tests/test_nonvoters.py::test_a_long_step_is_waited_for_also_where_the_coordinator_could_hear_nobody",),
    ),
    Mutant(
        "who_may_not_lead_stands_by_for_ever",
        "esper/runtime/coordinator/lease.py",
        "except (StaleLeaseError, UnavailableError):",
        "except Exception:",
        ("tests/test_leader_lease.py::test_who_may_not_lead_does_not_stand_by_for_ever",),
    ),
    Mutant(
        "what_is_added_behind_a_loss_counts_as_judged",
        "esper/tamiyo/coordinator.py",
        "        self._commands.fall_back(newest)\n",
        "",
        ("tests/test_rounds_lost.py::test_what_is_added_behind_a_loss_by_a_clock_behind_is_judged",),
    ),
    Mutant(
        "a_leader_stays_below_a_token_that_ranks_have_met",
        "esper/runtime/coordinator/loop.py",
        "        if token > self._token:",
        "        if token < 0:",
        ("tests/test_coordinator_lost.py::test_a_leader_goes_above_a_token_that_ranks_have_met_and_redis_has_lost",),
    ),
    Mutant(
        "a_generation_begins_below_one_that_ranks_have_met",
        "esper/tamiyo/coordinator.py",
        ", self._roster.newest_generation)",
        ")",
        ("tests/test_rounds_lost.py::test_it_goes_on_above_a_generation_that_ranks_have_met_by_a_clock_ahead",),
    ),
    Mutant(
        "a_round_is_let_go_of_once_as_many_have_left_as_were_asked",
        "esper/tamiyo/coordinator.py",
        "if {member.worker for member in self._roster.departed}.issuperset(barrier.roster):",
        "if len(self._roster.departed) == len(barrier.roster):",
        ("tests/test_rounds_end.py::test_an_open_round_outlasts_one_that_was_not_asked_and_has_left",),
    ),
    Mutant(
        "nobody_tells_a_replica_that_missed_its_eviction",
        "esper/tamiyo/roster.py",
        "            self.lingering.hear(heartbeat, now_ns)\n",
        "",
        ("tests/test_replicas.py::test_one_that_trains_on_though_it_was_evicted_is_told_again",),
    ),
    Mutant(
        "heartbeats_that_are_read_again_bring_back_dead_processes",
        "esper/runtime/coordinator/loop.py",
        'if name == "heartbeats" and opened.redelivered:',
        "if False:",
        (
            "tests/test_coordinator_lost.py"
            "::test_heartbeats_that_are_read_again_bring_back_no_process_that_was_replaced",
        ),
    ),
    Mutant(
        "a_vote_that_is_read_twice_is_done_with_twice",
        "esper/tamiyo/coordinator.py",
        "        if entry in self._votes:\n",
        "        if entry in ():\n",
        ("tests/test_rounds_end.py::test_a_vote_that_is_read_twice_is_done_with_once",),
    ),
    Mutant(
        "rounds_that_ranks_have_met_are_proposed_without_end",
        "esper/tamiyo/coordinator.py",
        "            self._is_void = why.unheeded\n",
        "",
        (
            "tests/test_rounds_end.py"
            "::test_where_ranks_vote_on_nothing_that_is_asked_numbers_go_on_above_all_that_they_can_have_met",
        ),
    ),
    Mutant(
        "one_that_votes_on_nothing_holds_up_all_rounds",
        "esper/tamiyo/nonvoters.py",
        "if self._rounds[worker] >= self.most]",
        "if self.most < 0]",
        (
            "tests/test_nonvoters.py::test_a_group_with_a_rank_that_votes_on_nothing_begins_anew_after_three_rounds",
            "tests/test_nonvoters.py"
            "::test_a_replica_that_votes_on_nothing_is_evicted_alone_and_what_waits_is_carried_out_by_the_others",
        ),
    ),
    Mutant(
        "one_that_compiles_is_given_up_as_it_does_not_vote",
        "esper/tamiyo/nonvoters.py",
        "roster.at_boundary(barrier.missing, barrier.proposed_ns + ARRIVED_NS)",
        "barrier.missing",
        ("tests/test_nonvoters.py::test_a_compilation_is_waited_for_said_or_not",),
    ),
    Mutant(
        "a_new_leader_takes_others_for_those_that_voted",
        "esper/tamiyo/coordinator.py",
        "self._roster.expect(decision.roster, decision.incarnations)",
        "self._roster.expect(decision.roster)",
        (
            "tests/test_rounds_resumed.py"
            "::test_where_all_were_started_anew_meanwhile_a_command_takes_effect_where_they_stand",
        ),
    ),
    Mutant(
        "a_commit_to_a_group_that_was_replaced_is_said_again",
        "esper/tamiyo/newest_decisions.py",
        "commit.roster_generation < generation and not roster.is_of_replicas",
        "False",
        ("tests/test_rounds_lost.py::test_a_new_leader_says_no_commit_again_whose_group_was_replaced",),
    ),
    Mutant(
        "an_entry_that_took_the_number_of_a_lost_one_passes_for_it",
        "esper/runtime/coordinator/loop.py",
        "if body != held[entry].body}",
        "if body is None}",
        (
            "tests/test_coordinator_lost.py"
            "::test_a_command_whose_number_another_has_after_a_loss_is_lost_and_the_other_is_judged",
        ),
    ),
    Mutant(
        "a_commit_behind_which_a_round_was_aborted_is_not_said_again",
        "esper/tamiyo/newest_decisions.py",
        "        return [said for said in (commit, self._abort) if said is not None]\n",
        "        return [said for said in (self._abort or commit,) if said is not None]\n",
        ("tests/test_rounds_lost.py::test_a_commit_that_a_rank_may_have_missed_is_said_again_also_behind_an_abort",),
    ),
    Mutant(
        "two_that_stand_by_lead_one_after_the_other",
        "esper/runtime/coordinator/lease.py",
        "        claim.expect(self.hash_key, VERSION, self._found)\n",
        "",
        ("tests/test_leader_lease.py::test_of_two_that_find_no_leader_at_once_one_leads_and_the_other_stands_by",),
    ),
    Mutant(
        "a_commit_names_what_was_lost_before_the_last_vote",
        "esper/runtime/coordinator/loop.py",
        "        if breaks != self._breaks:\n",
        "        if breaks < (0, 0):\n",
        ("tests/test_commands_lost.py::test_no_commit_names_a_command_that_was_lost_before_the_last_vote",),
    ),
    Mutant(
        "one_that_stands_by_takes_over_from_a_leader_that_remembers_a_lost_history",
        "esper/runtime/coordinator/lease.py",
        "if version == resigned and not (version is None and self._met):",
        "if version is None or version == resigned:",
        ("tests/test_leader_lease.py::test_a_leader_whose_history_is_lost_has_a_lease_to_claim_it_again",),
    ),
)
