"""Planted bugs: how a run is run again, Redis Cluster, exporters."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RETRACE = "esper/runtime/history/retrace.py"
AUDIT = "esper/runtime/history/audit.py"
RELEASE_TESTS = "tests/test_releases.py"
REPLAY_TESTS = "tests/test_replay_plan.py"
VERIFY_TESTS = "tests/test_verify.py"

MUTANTS = (
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
        ("tests/long/test_replay_session.py::test_a_gate_lets_through_what_it_let_through_then",),
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
        "esper/runtime/history/sequences.py",
        "        if sequence != expected:",
        "        if sequence < expected:",
        (f"{VERIFY_TESTS}::test_an_entry_that_is_removed_with_the_last_line_put_right_leaves_a_gap",),
    ),
    Mutant(
        "a_bad_seal_is_excused_by_any_refusal",
        AUDIT,
        "            if reasons & UNSEALED:",
        "            if reasons:",
        (
            f"{VERIFY_TESTS}::test_a_refused_command_whose_bytes_were_changed_since_is_found_unless_its_seal_was_what_"
            "was_refused",
        ),
    ),
    # -- on a Cluster ------------------------------------------------------------------------------------------------
    Mutant(
        "a_letter_goes_after_its_acknowledgement",
        "esper/bus/group/settlement.py",
        "return [Settlement(writes=away), replace(self, dead=[each for each in self.dead if each not in away])]",
        "return [replace(self, dead=[each for each in self.dead if each not in away]), Settlement(writes=away)]",
        ("tests/test_redis_addresses.py::test_letters_of_a_region_go_to_the_runs_slot_before_the_region_acknowledges",),
    ),
    Mutant(
        "a_group_of_that_name_is_taken_for_the_word_streams",
        "esper/bus/client/cluster.py",
        'words.index("STREAMS", READS[name])',
        'words.index("STREAMS")',
        ("tests/test_redis_addresses.py::test_a_command_goes_where_its_first_key_is",),
    ),
    # -- exporters and statements ------------------------------------------------------------------------------------
    Mutant(
        "torn_line_left_in_the_file",
        "esper/runtime/exporters/lines.py",
        "                file.truncate(start + end)\n",
        "",
        ("tests/test_export_files.py::test_cut_at_any_byte_its_end_is_written_again_once",),
    ),
    Mutant(
        "place_forgotten_when_the_file_is_set_aside",
        "esper/runtime/exporters/lines.py",
        "for each in (path, self._aside(1)):",
        "for each in (path,):",
        ("tests/test_export_files.py::test_a_file_is_set_aside_at_its_size_and_nothing_is_lost_or_doubled",),
    ),
    Mutant(
        "torn_record_taken_for_the_last_one",
        "esper/runtime/exporters/events.py",
        "offset + length + _CRC.size > size",
        "offset > size",
        ("tests/test_export_files.py::test_cut_at_any_byte_its_end_is_written_again_once",),
    ),
    Mutant(
        "total_counted_again",
        "esper/runtime/exporters/exposition.py",
        "if entry.aggregate.sequence > self._through:",
        "if True:",
        ("tests/test_export_prometheus.py::test_an_aggregate_that_comes_between_position_and_total_counts_once",),
    ),
    Mutant(
        "bucket_without_its_bound",
        "esper/narset/running.py",
        "get_cdf(list(bounds), True)",
        "get_cdf(list(bounds), False)",
        ("tests/test_export_prometheus.py::test_counters_histograms_and_gauges_say_what_was_measured",),
    ),
    Mutant(
        "statement_stored_by_each_runtime",
        "esper/runtime/beside/statements.py",
        "            if _covers(before, incarnation, number):\n                return\n",
        "",
        ("tests/test_statements.py::test_said_again_to_another_runtime_it_is_stored_once",),
    ),
    Mutant(
        "report_told_again_by_a_resumed_trainer",
        "esper/runtime/beside/statements.py",
        ".encode() not in found:",
        ".encode() is not None:",
        ("tests/test_statements.py::test_a_resumed_trainer_that_comes_to_the_same_end_adds_no_second_report",),
    ),
    Mutant(
        "statement_not_said_again",
        "esper/session/exchange.py",
        "            self.statements.say_again()\n",
        "            pass\n",
        ("tests/test_statements.py::test_what_is_not_known_to_be_stored_is_said_again_to_the_next_runtime",),
    ),
    Mutant(
        "level_left_out_of_account",
        "esper/cli/output/filters.py",
        "return not self.level or rank(level) >= rank(LEVELS[self.level])",
        "return True",
        ("tests/long/test_tail_passages.py::test_aggregates_are_chosen_by_level_and_their_metrics_by_name",),
    ),
    Mutant(
        "a_replay_tells_of_the_last_process_alone_what_it_ran_on",
        "esper/cli/replay.py",
        "for life in lived:  # it may",
        "for life in lived[-1:]:  # it may",
        (f"{RELEASE_TESTS}::test_another_torch_of_a_process_that_was_gone_on_with_is_told_once_by_a_replay",),
    ),
    Mutant(
        "other_code_that_has_trained_a_run_is_not_told",
        "esper/runtime/history/releases.py",
        "if release != running()]",
        "if release == UNTOLD]",
        (f"{RELEASE_TESTS}::test_other_code_that_has_trained_for_a_while_is_named_in_one_line_and_nothing_refused",),
    ),
)
