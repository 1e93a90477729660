"""Which record of a seed goes first, by a plain reading of the rule, and how little is read to find out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, strategies as st

from esper.kasmina.seeds.records import MOST_RECORDS, dispensable
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, FOSSILIZED, GERMINATED, TRAINING

STAGES = (GERMINATED, TRAINING, CULLED, FOSSILIZED)
SANITY = pb.SeedLifecycleGate.SEED_GATE_G0_SANITY
GRADIENT = pb.SeedLifecycleGate.SEED_GATE_G1_GRADIENT_HEALTH
NONE = pb.SeedLifecycleGate.SEED_GATE_UNKNOWN
RECORDS = st.builds(
    pb.StageRecord, stage=st.sampled_from(STAGES), gate=st.sampled_from((NONE, GRADIENT)), passed=st.booleans()
)
BIRTH = pb.StageRecord(stage=GERMINATED, gate=SANITY, passed=True)


def first_to_go(history: Sequence[pb.StageRecord]) -> tuple[int, bool]:
    """The rule, word by word: earlier lives first, then gates that this one failed, then what is behind its birth."""
    births = [at for at, record in enumerate(history) if record.stage == GERMINATED and record.passed]
    if not births or births[-1] > 0:
        return 0, False
    failed = [at for at, record in enumerate(history) if record.gate and not record.passed]
    ends = [at for at, record in enumerate(history) if record.stage in (CULLED, FOSSILIZED)]
    if not failed:
        return 1, False
    return failed[0], not ends or failed[0] <= ends[0]


@given(st.lists(RECORDS, min_size=1, max_size=9), st.booleans())
def test_what_goes_first_is_what_the_rule_says(records: list[pb.StageRecord], born: bool) -> None:
    history = [BIRTH, *records] if born else records

    assert dispensable(history) == first_to_go(history)


@dataclass
class Counting:
    """A record that counts how often it is read."""

    record: pb.StageRecord
    reads: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        self.reads.append(name)
        return getattr(self.record, name)


def test_of_a_full_history_of_failed_gates_each_record_is_read_once() -> None:
    failed = pb.StageRecord(stage=TRAINING, gate=GRADIENT, passed=False)
    history = [Counting(BIRTH), *(Counting(failed) for _ in range(MOST_RECORDS))]

    found = dispensable(history)  # type: ignore[arg-type]

    assert found == (1, True)
    assert sum(len(record.reads) for record in history) <= len(history) + 8
