"""Every class of bad input by its name, and the order in which they come."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count

from tests.faults.fuzz_bodies import BODIES
from tests.faults.fuzz_bytes import BYTES
from tests.faults.fuzz_case import Class
from tests.faults.fuzz_headers import HEADERS

HEAVY_EVERY = 20  # rounds

CLASSES: Sequence[Class] = (*BYTES, *HEADERS, *BODIES)
REFUSED = [each for each in CLASSES if not each.may_pass]
ODD = [each for each in CLASSES if each.passes]
"""What a holder of the key may say so, and protobuf or the entry takes: each takes effect once, as anything genuine."""
OPEN = [each for each in CLASSES if each.may_pass and not each.passes]
"""Drawn at random under a good seal: some make sense by chance. They must not break anything."""


def rounds(num_refused: int, chance: random.Random) -> Iterator[list[tuple[Class, int]]]:
    """Which sample of which class: so many that must be refused, all classes in each round; the others besides."""
    left = num_refused
    for number in count():
        light = [(each, number) for each in REFUSED if not each.heavy]
        heavy = [(each, number // HEAVY_EVERY) for each in REFUSED if each.heavy and number % HEAVY_EVERY == 0]
        bad = [*heavy, *light][:left]  # in its last round those are left out that came most often
        left -= len(bad)
        drawn = [*bad, *((each, number) for each in (*ODD, *OPEN))]
        chance.shuffle(drawn)
        yield drawn
        if left == 0:
            return
