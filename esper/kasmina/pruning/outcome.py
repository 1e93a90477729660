"""How pruning answers a command, and what it tells of by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from esper.errors import RefusedError
from esper.kasmina.moves import Outcome
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.leyline import contracts as pb


@dataclass(frozen=True, slots=True)
class PruningEvent:
    """Something that no command asked for."""

    name: str
    attributes: Mapping[str, str]


def applied(detail: str, evidence: Mapping[str, float]) -> Outcome:
    return Outcome(pb.ReceiptStatus.RECEIPT_APPLIED, detail=detail, evidence=evidence)


def failed(error: RefusedError) -> Outcome:
    return Outcome(pb.ReceiptStatus.RECEIPT_FAILED, error.reason, error.detail)


def told(phase: int) -> str:
    """A phase in words."""
    return pb.PruningPhase.Name(phase).removeprefix("PRUNING_PHASE_").lower()


def told_things(settings: KasminaCheckpointPruningConfig) -> str:
    """What a run with these settings prunes, in words."""
    more = [name for name in ("layers", "weights") if getattr(settings, name)]
    *first, last = ["channels", "heads", *more]
    return f"{', '.join(first)} and {last}"
