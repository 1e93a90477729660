"""What pruning answers to a command, and what it tells of by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from esper.errors import RefusedError
from esper.leyline import contracts as pb


@dataclass(frozen=True, slots=True)
class PruningOutcome:
    """How this rank fared: numbers of ReceiptStatus and ReasonCode, one sentence, and figures for the receipt."""

    status: int
    reason: int = pb.ReasonCode.REASON_NONE
    detail: str = ""
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PruningEvent:
    """Something that no command asked for."""

    name: str
    attributes: Mapping[str, str]


def applied(detail: str, evidence: Mapping[str, float]) -> PruningOutcome:
    return PruningOutcome(pb.ReceiptStatus.RECEIPT_APPLIED, detail=detail, evidence=evidence)


def failed(error: RefusedError) -> PruningOutcome:
    return PruningOutcome(pb.ReceiptStatus.RECEIPT_FAILED, error.reason, error.detail)


def told(phase: int) -> str:
    """A phase in words."""
    return pb.PruningPhase.Name(phase).removeprefix("PRUNING_PHASE_").lower()
