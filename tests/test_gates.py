"""Each gate has evidence that passes it, and evidence that doesn't; an unmeasured value fails."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.rules import (
    Evidence,
    GradientEvidence,
    ImpactEvidence,
    InterfaceEvidence,
    ResetEvidence,
    SanityEvidence,
    StabilityEvidence,
    judge,
)

CONFIG = KasminaConfig()
NAN = float("nan")
PASSING: list[Evidence] = [
    SanityEvidence(1.0, 0.0, 0.0, 0.0, 1000.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    GradientEvidence(50.0, 0.9, 0.8, -0.01, 0.5, 0.1, 0.0),
    StabilityEvidence(0.0, 0.0, 0.1, 0.0, 1.0),
    InterfaceEvidence(0.0, 9.0, 2.0, 0.1),
    ImpactEvidence(512.0, 0.02, 0.01, 0.03, look=1, fault=0.0),
    ResetEvidence(0.0, 0.0, 0.0, 0.0, 0.0),
]
BAD: list[tuple[int, str, float]] = [
    (0, "seen", 0.0),
    (0, "fault", 1.0),
    (0, "digest_gap", 1.0),
    (0, "non_finite", 1.0),
    (0, "seed_bytes", CONFIG.seed_memory_bytes + 1.0),
    (0, "shape_ok", 0.5),
    (0, "identity", 1e-9),
    (0, "draws", 1.0),
    (0, "stray_leaves", 1.0),
    (0, "hooks", 1.0),
    (1, "steps", 49.0),
    (1, "fit_last", 0.9),
    (1, "probe_change", 0.0),
    (1, "gradient_ratio", 9e-4),
    (1, "gradient_ratio", 10.1),
    (1, "size_ratio", 0.51),
    (1, "violations", 1.0),
    (1, "fit_last", NAN),
    (1, "fit_first", NAN),
    (2, "alpha_gap", 0.01),
    (2, "alpha_held", 1.0),
    (2, "loss_variance", 2.1),
    (2, "recompiles", 3.0),
    (2, "latency_ms", 20.1),
    (3, "mismatches", 1.0),
    (3, "batches", 0.0),
    (3, "batches_shadowed", 0.0),
    (3, "scale_drift", 0.51),
    (4, "examples", 255.0),
    (4, "low", 0.0),
    (4, "mean", NAN),
    (4, "fault", 0.5),
    (5, "seeds", 1.0),
    (5, "optimizers", 1.0),
    (5, "hooks", 1.0),
    (5, "bytes_held", 4.0),
    (5, "differing", 1.0),
]


@pytest.mark.parametrize(("steps", "is_told"), [(0.0, True), (3.0, False), (None, False)])
def test_a_seed_to_which_no_gradient_comes_is_told_to_look_at_what_the_loss_reads(
    steps: float | None, is_told: bool
) -> None:
    result = judge(GradientEvidence(steps, None, None, None, None, None, 0.0), CONFIG)

    assert not result.passed
    assert ("no gradient has come to the seed" in result.detail) == is_told


def test_a_seed_of_a_run_whose_steps_tell_no_loss_is_told_what_g2_takes() -> None:
    told, untold = (judge(StabilityEvidence(0.0, 0.0, variance, 0.0, 1.0), CONFIG) for variance in (9.0, None))

    assert untold.detail.startswith("loss_variance is unmeasured; it takes the losses of a window of steps")
    assert "step.loss(loss)" in untold.detail and "step.loss(loss)" not in told.detail


@pytest.mark.parametrize("gate", range(6))
def test_a_gate_passes_on_sound_evidence(gate: int) -> None:
    result = judge(PASSING[gate], CONFIG)

    assert (result.passed, result.detail, result.hopeless) == (True, "", False)


@pytest.mark.parametrize(("gate", "name", "value"), BAD)
def test_a_gate_fails_on_each_bad_value_and_names_it(gate: int, name: str, value: float) -> None:
    change: dict[str, Any] = {name: value}

    result = judge(replace(PASSING[gate], **change), CONFIG)

    assert not result.passed
    assert f"{name} is {value:.4g}" in result.detail or name == "fit_first"
    assert result.non_finite == (value != value)


@pytest.mark.parametrize("gate", range(6))
def test_an_unmeasured_value_fails_its_gate(gate: int) -> None:
    for name in (field.name for field in fields(PASSING[gate]) if field.name not in ("look", "high")):
        change: dict[str, Any] = {name: None}

        result = judge(replace(PASSING[gate], **change), CONFIG)

        assert not result.passed
        assert f"{name} is unmeasured" in result.detail


@pytest.mark.parametrize(
    ("look", "low", "high", "hopeless"),
    [
        (1, -0.01, 0.02, False),
        (2, -0.01, 0.02, False),
        (3, -0.01, 0.02, True),
        (1, -0.02, -0.01, True),
        (1, 0.0, 0.01, False),
    ],
)
def test_an_inconclusive_look_holds_until_the_last_one(look: int, low: float, high: float, hopeless: bool) -> None:
    result = judge(ImpactEvidence(512.0, (low + high) / 2, low, high, look, 0.0), CONFIG)

    assert not result.passed
    assert result.hopeless == hopeless
