"""The eleven stages: which operation is legal where, and which gate guards it. Written out by hand from the design."""

from __future__ import annotations

from typing import cast

import pytest

from esper.errors import RefusedError
from esper.leyline import contracts as pb, lifecycle

LEGAL = """
DORMANT      GERMINATE        GERMINATED
GERMINATED   START_TRAINING   TRAINING
TRAINING     START_GRAFTING   BLENDING
BLENDING     STABILIZE        SHADOWING
SHADOWING    EVALUATE         PROBATIONARY
PROBATIONARY FOSSILIZE        FOSSILIZED
GERMINATED   CULL             CULLED
TRAINING     CULL             CULLED
BLENDING     CULL             CULLED
SHADOWING    CULL             CULLED
PROBATIONARY CULL             CULLED
GERMINATED   CANCEL           CULLED
TRAINING     CANCEL           CULLED
EMBARGOED    RESET            RESETTING
DORMANT      TERMINATE        TERMINATED
FOSSILIZED   TERMINATE        TERMINATED
BLENDING     SET_ALPHA_TARGET BLENDING
"""
TABLE = {(row.split()[0], row.split()[1]): row.split()[2] for row in LEGAL.strip().splitlines()}
GATES = {
    "GERMINATE": "G0_SANITY",
    "START_GRAFTING": "G1_GRADIENT_HEALTH",
    "STABILIZE": "G2_STABILITY",
    "EVALUATE": "G3_INTERFACE",
    "FOSSILIZE": "G4_SYSTEM_IMPACT",
    "RESET": "G5_RESET",
}
STAGES = [name.removeprefix("SEED_STAGE_") for name in pb.SeedLifecycleStage.keys() if not name.endswith("UNKNOWN")]  # noqa: SIM118
OPERATIONS = [name.removeprefix("SEED_OP_") for name in pb.SeedOperation.keys()]  # noqa: SIM118


def stage(name: str) -> pb.SeedLifecycleStage:
    return cast(pb.SeedLifecycleStage, pb.SeedLifecycleStage.Value(f"SEED_STAGE_{name}"))


def operation(name: str) -> pb.SeedOperation:
    return cast(pb.SeedOperation, pb.SeedOperation.Value(f"SEED_OP_{name}"))


@pytest.mark.parametrize("origin", STAGES)
@pytest.mark.parametrize("verb", OPERATIONS)
def test_every_pair_of_stage_and_operation_is_judged_as_written(origin: str, verb: str) -> None:
    target = TABLE.get((origin, verb))

    if target is not None:
        assert lifecycle.target_stage(stage(origin), operation(verb)) == stage(target)
    else:
        with pytest.raises(RefusedError) as refused:
            lifecycle.target_stage(stage(origin), operation(verb))
        assert refused.value.reason == pb.ReasonCode.REASON_ILLEGAL_TRANSITION


def test_there_are_eleven_stages_and_each_is_reached_or_the_first() -> None:
    reached = {stage(target) for target in TABLE.values()} | set(lifecycle.FOLLOWS.values())

    assert len(lifecycle.STAGES) == 11
    assert reached == set(lifecycle.STAGES)


def test_culled_and_resetting_are_left_without_a_command() -> None:
    assert {stage("CULLED"): stage("EMBARGOED"), stage("RESETTING"): stage("DORMANT")} == lifecycle.FOLLOWS


@pytest.mark.parametrize("verb", OPERATIONS)
def test_each_guarded_operation_names_its_gate(verb: str) -> None:
    expected = pb.SeedLifecycleGate.Value(f"SEED_GATE_{GATES.get(verb, 'UNKNOWN')}")

    assert lifecycle.gate_of(operation(verb)) == expected


def test_a_refusal_says_what_would_have_been_legal() -> None:
    with pytest.raises(RefusedError, match="FOSSILIZE from TRAINING; legal from there: START_GRAFTING, CULL, CANCEL"):
        lifecycle.target_stage(stage("TRAINING"), operation("FOSSILIZE"))


def test_names_are_spelled_for_people() -> None:
    assert lifecycle.short(stage("TRAINING")) == "TRAINING"
    assert lifecycle.reason_name(pb.ReasonCode.REASON_REPLAYED) == "replayed"
    assert lifecycle.gate_name(pb.SeedLifecycleGate.SEED_GATE_G4_SYSTEM_IMPACT) == "G4_SYSTEM_IMPACT"
    assert lifecycle.reason_name(999) == "999"


def test_what_learns_can_be_culled_and_what_is_blended_includes_fossils() -> None:
    cullable = {stage(origin) for origin, verb in TABLE if verb == "CULL"}

    assert cullable == lifecycle.ACTIVE_STAGES
    assert cullable - {stage("GERMINATED")} == lifecycle.LEARNING_STAGES
    assert {stage(name) for name in ("BLENDING", "SHADOWING", "PROBATIONARY", "FOSSILIZED")} == lifecycle.BLENDED_STAGES
