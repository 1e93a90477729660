"""What the log says of a round that is decided."""

from __future__ import annotations

import structlog

from esper.leyline import contracts as pb
from esper.leyline.succession import Decision

log = structlog.get_logger()


def tell(decision: Decision) -> None:
    """One line, and one more where replicas are not alike."""
    if isinstance(decision, pb.BarrierCommit):
        log.info(
            "round.committed",
            round=decision.round,
            effective_step=decision.effective_step,
            num_commands=len(decision.commands),
            latency_ms=round(decision.latency_ms, 3),
        )
        if decision.deviating or decision.deviating_gradients:
            log.error(
                "replicas.deviated",
                round=decision.round,
                workers=list(decision.deviating),
                in_gradients=list(decision.deviating_gradients),
                quarantined=list(decision.quarantined),
            )
    elif isinstance(decision, pb.BarrierAbort):
        log.warning("round.aborted", round=decision.round, why=decision.detail, missing=list(decision.missing))
