"""The eleven stages of a seed, and which operation leads from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from esper.errors import RefusedError, listed
from esper.leyline import contracts as pb

DORMANT: Final = pb.SeedLifecycleStage.SEED_STAGE_DORMANT
GERMINATED: Final = pb.SeedLifecycleStage.SEED_STAGE_GERMINATED
TRAINING: Final = pb.SeedLifecycleStage.SEED_STAGE_TRAINING
BLENDING: Final = pb.SeedLifecycleStage.SEED_STAGE_BLENDING
SHADOWING: Final = pb.SeedLifecycleStage.SEED_STAGE_SHADOWING
PROBATIONARY: Final = pb.SeedLifecycleStage.SEED_STAGE_PROBATIONARY
FOSSILIZED: Final = pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED
CULLED: Final = pb.SeedLifecycleStage.SEED_STAGE_CULLED
EMBARGOED: Final = pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED
RESETTING: Final = pb.SeedLifecycleStage.SEED_STAGE_RESETTING
TERMINATED: Final = pb.SeedLifecycleStage.SEED_STAGE_TERMINATED

STAGES = (
    DORMANT,
    GERMINATED,
    TRAINING,
    BLENDING,
    SHADOWING,
    PROBATIONARY,
    FOSSILIZED,
    CULLED,
    EMBARGOED,
    RESETTING,
    TERMINATED,
)
# Its own optimizer steps the seed's parameters.
LEARNING_STAGES = frozenset({TRAINING, BLENDING, SHADOWING, PROBATIONARY})
# A seed that may be culled: built, and not yet for good.
ACTIVE_STAGES = LEARNING_STAGES | {GERMINATED}
# alpha * delta is part of the forward value.
BLENDED_STAGES = frozenset({BLENDING, SHADOWING, PROBATIONARY, FOSSILIZED})
# The site takes another seed: a fossil is part of the host.
VACATED_STAGES = frozenset({DORMANT, FOSSILIZED, TERMINATED})

_Operation = pb.SeedOperation
_Transitions = Mapping[tuple[pb.SeedLifecycleStage, pb.SeedOperation], pb.SeedLifecycleStage]

TRANSITIONS: _Transitions = {
    (DORMANT, _Operation.SEED_OP_GERMINATE): GERMINATED,
    (GERMINATED, _Operation.SEED_OP_START_TRAINING): TRAINING,
    (TRAINING, _Operation.SEED_OP_START_GRAFTING): BLENDING,
    (BLENDING, _Operation.SEED_OP_STABILIZE): SHADOWING,
    (SHADOWING, _Operation.SEED_OP_EVALUATE): PROBATIONARY,
    (PROBATIONARY, _Operation.SEED_OP_FOSSILIZE): FOSSILIZED,
    **{(stage, _Operation.SEED_OP_CULL): CULLED for stage in STAGES if stage in ACTIVE_STAGES},
    (GERMINATED, _Operation.SEED_OP_CANCEL): CULLED,
    (TRAINING, _Operation.SEED_OP_CANCEL): CULLED,
    (EMBARGOED, _Operation.SEED_OP_RESET): RESETTING,
    (DORMANT, _Operation.SEED_OP_TERMINATE): TERMINATED,
    (FOSSILIZED, _Operation.SEED_OP_TERMINATE): TERMINATED,
    (BLENDING, _Operation.SEED_OP_SET_ALPHA_TARGET): BLENDING,
}

# What follows by itself, without a command.
FOLLOWS: Mapping[pb.SeedLifecycleStage, pb.SeedLifecycleStage] = {CULLED: EMBARGOED, RESETTING: DORMANT}

_GATES: Mapping[pb.SeedOperation, pb.SeedLifecycleGate] = {
    _Operation.SEED_OP_GERMINATE: pb.SeedLifecycleGate.SEED_GATE_G0_SANITY,
    _Operation.SEED_OP_START_GRAFTING: pb.SeedLifecycleGate.SEED_GATE_G1_GRADIENT_HEALTH,
    _Operation.SEED_OP_STABILIZE: pb.SeedLifecycleGate.SEED_GATE_G2_STABILITY,
    _Operation.SEED_OP_EVALUATE: pb.SeedLifecycleGate.SEED_GATE_G3_INTERFACE,
    _Operation.SEED_OP_FOSSILIZE: pb.SeedLifecycleGate.SEED_GATE_G4_SYSTEM_IMPACT,
    _Operation.SEED_OP_RESET: pb.SeedLifecycleGate.SEED_GATE_G5_RESET,
}


def target_stage(stage: pb.SeedLifecycleStage, operation: pb.SeedOperation) -> pb.SeedLifecycleStage:
    """The stage that an operation lands in, before what FOLLOWS; refused where it isn't legal."""
    target = TRANSITIONS.get((stage, operation))
    if target is None:
        legal = listed(operation_name(op) for origin, op in TRANSITIONS if origin == stage)
        raise RefusedError(
            pb.ReasonCode.REASON_ILLEGAL_TRANSITION,
            f"{operation_name(operation)} from {short(stage)}; legal from there: {legal}",
        )
    return target


def gate_of(operation: pb.SeedOperation) -> pb.SeedLifecycleGate:
    """The gate that an operation must pass; 0 (unknown): none guards it."""
    return _GATES.get(operation, pb.SeedLifecycleGate.SEED_GATE_UNKNOWN)


def short(stage: pb.SeedLifecycleStage) -> str:
    """TRAINING for SEED_STAGE_TRAINING; the number itself for one that this version doesn't know."""
    return _name(pb.SeedLifecycleStage, stage, "SEED_STAGE_")


def operation_name(operation: pb.SeedOperation) -> str:
    """START_TRAINING for SEED_OP_START_TRAINING."""
    return _name(pb.SeedOperation, operation, "SEED_OP_")


def gate_name(gate: pb.SeedLifecycleGate) -> str:
    """G1_GRADIENT_HEALTH for SEED_GATE_G1_GRADIENT_HEALTH."""
    return _name(pb.SeedLifecycleGate, gate, "SEED_GATE_")


REASONS: Mapping[str, int] = {name.removeprefix("REASON_").lower(): number for name, number in pb.ReasonCode.items()}
"""By their names as `reason_name` spells them."""


@lru_cache(maxsize=256)
def reason_name(code: int) -> str:
    """replayed for REASON_REPLAYED: how logs, receipts and summaries spell a reason."""
    return _name(pb.ReasonCode, code, "REASON_").lower()


def status_name(status: int) -> str:
    """applied for RECEIPT_APPLIED."""
    return _name(pb.ReceiptStatus, status, "RECEIPT_").lower()


def outcome_name(outcome: pb.FieldReportOutcome) -> str:
    """success for FIELD_REPORT_SUCCESS."""
    return _name(pb.FieldReportOutcome, outcome, "FIELD_REPORT_").lower()


@lru_cache(maxsize=512)
def _name(enumeration: EnumTypeWrapper, number: int, prefix: str) -> str:
    if number not in enumeration.values():
        return str(int(number))
    return enumeration.Name(number).removeprefix(prefix)
