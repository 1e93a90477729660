"""Bad input by class: each refused for a reason that is named for it, by readers both warm and cold."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from tests.faults.forge import Forge, Secrets
from tests.faults.fuzz import CLASSES, HEAVY_EVERY, ODD, OPEN, REFUSED, rounds
from tests.faults.fuzz_bytes import PARTS, part_of
from tests.faults.fuzz_case import Class
from tests.faults.gate import COLD_EVERY, Gate
from tests.faults.row import Result
from tests.sealed import NOW_MS, NOW_NS, RUN

NUM_SAMPLES = 2 * COLD_EVERY
NUM_FIRST = 10


def gate(seed: int = 1) -> Gate:
    """A reader that has met both producers."""
    chance = random.Random(seed)
    made = Gate(Forge(Secrets(RUN, NOW_NS, chance), lambda: NOW_NS, chance), NOW_MS, Result())
    for _ in range(NUM_FIRST):
        made.good()
    return made


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in CLASSES])
def test_every_sample_of_a_class_is_refused_for_one_of_its_reasons_or_taken_where_that_is_stated(kind: Class) -> None:
    reader = gate()

    for number in range(2 if kind.heavy else NUM_SAMPLES):
        reader.bad(kind, number)
        reader.good()
    reader.judge()

    assert reader.result.violations == []


def test_the_classes_are_many_and_each_has_a_name_of_its_own() -> None:
    names = Counter(kind.name for kind in CLASSES)

    assert len(REFUSED) >= 40
    assert len(REFUSED) + len(ODD) + len(OPEN) == len(CLASSES)
    assert max(names.values()) == 1


def test_every_byte_of_a_message_lies_in_one_part_that_is_harmed() -> None:
    sealed = gate().forge.spare()

    places = sorted(place for part in PARTS for place in part_of(sealed, part))

    assert places == list(range(len(sealed)))


def test_rounds_bring_exactly_as_many_bad_ones_as_asked_for_of_all_classes() -> None:
    num_refused = len(REFUSED) + 5 * len(CLASSES)

    drawn = [kind for drawn in rounds(num_refused, random.Random(1)) for kind, _ in drawn]

    times = Counter(kind.name for kind in drawn)
    assert sum(kind in REFUSED for kind in drawn) == num_refused
    assert times.keys() == {kind.name for kind in CLASSES}
    assert all(times[kind.name] <= 1 for kind in REFUSED if kind.heavy)
    first = next(islice(rounds(num_refused, random.Random(2)), HEAVY_EVERY))
    assert {kind.name for kind, _ in first} == times.keys()


def test_the_same_seed_makes_the_same_bytes() -> None:
    one, other = (
        [kind.make(reader.forge, number).fields for kind in CLASSES if not kind.heavy for number in range(3)]
        for reader in (gate(7), gate(7))
    )

    assert one == other


def test_a_reader_that_lets_in_what_it_must_not_is_found_out() -> None:
    reader = gate()
    harmed = next(kind for kind in CLASSES if kind.name == "flipped_seal")
    taken = Class("taken", next(kind for kind in ODD if kind.name == "unknown_fields").make, harmed.allowed)

    reader.bad(taken, 0)
    reader.judge()

    said = reader.result.violations
    assert said[0] == "taken 0: accepted; expected ['bad_seal']"
    assert said[1].startswith("1 of ") and "applied and never published" in said[1]
