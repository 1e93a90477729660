"""What the fault table floods a stream with is junk to every version."""

from __future__ import annotations

import random

from esper.leyline.envelope import MAGIC
from tests.faults.roles.flooder import junk

SEED = 31_002
"""Its 2,000 pieces held one that began as an envelope of version 196: that is kept, and was met 280 times in a part."""


def test_none_begins_as_an_envelope_that_another_version_may_open() -> None:
    chance, genuine = random.Random(SEED), [bytes(231)] * 64

    pieces = [junk(genuine, chance) for _ in range(2_000)]

    assert not [piece for piece in pieces if piece.startswith(MAGIC)]
    assert len(set(pieces)) > 1_000
