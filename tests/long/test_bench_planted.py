"""Wrong work planted in arms of the suite is refused before anything is timed."""

from __future__ import annotations

import pytest
import torch

from esper.bench.agreement import DisagreementError, difference
from esper.bench.arm import Ready
from esper.bench.registry import registered
from esper.bench.row import Comparison
from esper.bench.rows.distillation import BATCH, QUANTISED, ROUNDING, STEP, STUDENT, TEACHER
from esper.bench.timing.blame import ArmFailedError
from esper.bench.timing.opened import agree
from esper.bench.work import ranks
from esper.bench.work.overheads import Slotted
from esper.bench.work.seeds import grafts
from esper.bench.work.teachers import students
from esper.bench.work.teachers.modes import listed
from esper.bench.work.wire.sealing import Wire
from esper.leyline.replay import ReplayGuard
from tests.altered import altered


def comparison(name: str) -> Comparison:
    row = registered()[name]
    assert isinstance(row, Comparison)
    return row


def idle(ready: Ready) -> Ready:
    """Quick, and without effect."""
    ready.call = lambda: None
    return ready


def test_a_graft_that_leaves_its_site_empty_is_refused() -> None:
    reference, empty = grafts.pop_and_assign(), idle(grafts.pooled())

    with pytest.raises(ArmFailedError, match="no seed stands at"):
        agree(comparison("kernel-load"), {"pop and assign": reference, "pool to slot": empty})


def test_a_rollback_that_brings_nothing_back_is_refused() -> None:
    copied, forgotten = ranks.copied_back(), idle(ranks.rolled_back())

    with pytest.raises(DisagreementError, match="rollback does not come to what"):
        agree(comparison("emergency-rollback"), {"bytes copied back": copied, "rollback": forgotten})

    for ready in (copied, forgotten):
        assert ready.close is not None
        ready.close()


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_distilled_step_whose_loss_is_too_small_is_refused(share: float) -> None:
    taught = students.taught(STUDENT, TEACHER, BATCH)
    step = taught.call
    assert isinstance(step, students.Step) and step.soft is not None
    soft = step.soft
    step.soft = lambda logits, inputs: share * soft(logits, inputs)

    with pytest.raises(DisagreementError, match="with KD does not come to what"):
        agree(STEP, {"without KD": students.alone(STUDENT, BATCH), "with KD": taught})


@pytest.mark.parametrize("wrong", [0.0, 0.5, 1.2, -1.0])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e3])
def test_values_of_any_size_that_are_off_are_told_apart(scale: float, wrong: float) -> None:
    values = scale * torch.linspace(-1, 2, 1_000)

    for tolerance in (ROUNDING, QUANTISED):
        assert difference(listed(values), listed(values * (1 + 1e-6)), tolerance) == ""
        assert difference(listed(values), listed(values * wrong), tolerance) != ""


def test_a_forward_that_passes_a_seed_by_is_refused() -> None:
    slotted = Slotted("training")
    slotted.output()

    slotted.executor._slots["2"].settle(None)

    with pytest.raises(RuntimeError, match="the forward ran no seed at 2"):
        slotted.output()


def test_what_opens_a_forgery_or_a_repeat_is_refused() -> None:
    wire = Wire("adaptation command", ReplayGuard())
    sealed = wire.seal()
    wire.refuses(altered(sealed), "a forgery")

    with pytest.raises(RuntimeError, match="a forgery was opened"):
        wire.refuses(sealed, "a forgery")
    wire.refuses(sealed, "a repeat")
