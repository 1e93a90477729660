"""Planted bugs: what tier 1 makes of bodies that it does not parse, and of many values at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OTHER_BYTES = (
    "tests/test_zero_copy.py::test_a_body_with_other_bytes_means_what_the_library_makes_of_it[a frame]",
    "tests/test_zero_copy.py::test_a_body_with_other_bytes_means_what_the_library_makes_of_it[a packet]",
)

MUTANTS = (
    Mutant(
        "a_body_with_other_bytes_passes_for_what_is_known",
        "esper/narset/layout.py",
        'return int.from_bytes(rows, "little") & same == pattern',
        "return True",
        _OTHER_BYTES,
    ),
    Mutant(
        "a_number_of_more_groups_passes_for_a_shorter_one",
        "esper/narset/layout.py",
        "same[first:end] = bytes([_MORE]) * (end - first)",
        "same[first:end] = bytes(end - first)",
        _OTHER_BYTES,
    ),
    Mutant(
        "anything_may_follow_the_packets_of_a_frame",
        "esper/narset/zero_copy.py",
        "(tail != self._tail and not self._ends(tail))",
        "(self._ends(tail) and False)",
        ("tests/test_zero_copy.py::test_a_body_with_other_bytes_means_what_the_library_makes_of_it[a frame]",),
    ),
    Mutant(
        "sequences_of_a_frame_that_is_not_parsed_need_not_rise",
        "esper/narset/zero_copy.py",
        "if not first or not (sequences[1:] > sequences[:-1]).all():",
        "if not first:",
        ("tests/test_zero_copy.py::test_packets_whose_sequences_do_not_rise_are_parsed_and_refused",),
    ),
    Mutant(
        "what_is_unsound_is_learnt_from",
        "esper/narset/zero_copy.py",
        "            if self._rule(message) is not None:\n                self._look.learn(message, body)",
        "            self._look.learn(message, body)",
        (
            "tests/test_zero_copy.py"
            "::test_what_has_more_to_it_than_numbers_or_is_unsound_is_never_learnt_from[an unsound name]",
        ),
    ),
    Mutant(
        "packets_of_another_region_that_are_not_parsed_are_folded",
        "esper/narset/regional.py",
        "self._check(header.target if frame is None else frame.region)",
        "pass",
        ("tests/test_zero_copy.py::test_a_packet_of_another_region_is_refused_without_being_parsed",),
    ),
    Mutant(
        "packets_met_before_that_are_not_parsed_are_folded_again",
        "esper/narset/regional.py",
        "packed.kept(new), len(new)",
        "packed.rows, len(packed.sequences)",
        ("tests/test_zero_copy.py::test_of_a_packed_frame_only_what_was_not_met_is_folded",),
    ),
    Mutant(
        "a_sketch_always_draws_the_first_of_a_stretch",
        "esper/narset/kll.py",
        "range(_CHANCE.randrange(step), whole, step)",
        "range(0, whole, step)",
        ("tests/test_kll.py::test_a_rank_is_off_by_nothing_on_average",),
    ),
)
