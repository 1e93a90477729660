"""The policy of seeds that were germinated with auto=1: which operation such a seed asks for next, and when."""

from __future__ import annotations

from esper.kasmina.config import KasminaConfig
from esper.kasmina.seeds.seed import Seed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import (
    BLENDING,
    EMBARGOED,
    GERMINATED,
    PROBATIONARY,
    SHADOWING,
    TRAINING,
    gate_name,
    gate_of,
)

Op = pb.SeedOperation

NEXT = {
    GERMINATED: Op.SEED_OP_START_TRAINING,
    TRAINING: Op.SEED_OP_START_GRAFTING,
    BLENDING: Op.SEED_OP_STABILIZE,
    SHADOWING: Op.SEED_OP_EVALUATE,
    PROBATIONARY: Op.SEED_OP_FOSSILIZE,
    EMBARGOED: Op.SEED_OP_RESET,
}
ADVANCING = frozenset(NEXT.values())
WINDOWS = {TRAINING: 2, BLENDING: 1, SHADOWING: 1, PROBATIONARY: 1}  # in a stage before its gate is tried


def wish(seed: Seed, step: int, epoch: int, config: KasminaConfig) -> pb.SeedRequest | None:
    """What the policy asks the coordinator for; None while there is nothing to do but wait.

    A failed gate is tried again a window later, and after `auto_attempts` the seed is to be culled. A seed that is
    paused, or whose alpha is held, is left where it is. Every rank wishes for the same, as all count the same steps.
    """
    if not seed.auto or seed.paused or seed.complaint is not None or seed.stage not in NEXT:
        return None
    operation = NEXT[seed.stage]
    if seed.stage != EMBARGOED and seed.attempts >= config.auto_attempts:
        detail = f"{gate_name(gate_of(operation))} was failed {seed.attempts} times; at most {config.auto_attempts}"
        return _request(seed, Op.SEED_OP_CULL, pb.ReasonCode.REASON_GATE_FAILED, detail)
    return _request(seed, operation) if ready(seed, step, epoch, config) else None


def ready(seed: Seed, step: int, epoch: int, config: KasminaConfig) -> bool:
    """Whether it is time for the next operation, whoever asks for it: READY_FLAG of the state tensor."""
    if seed.paused or seed.complaint is not None or seed.stage not in NEXT:
        return False
    return epoch >= seed.embargo_until_epoch if seed.stage == EMBARGOED else step >= _due(seed, config)


def _due(seed: Seed, config: KasminaConfig) -> float:
    """The step from which on the next gate may be tried."""
    if seed.attempts:
        return seed.tried_at + config.window
    since = seed.stage_since_step
    if seed.stage == BLENDING:
        if seed.schedule.held_since is not None:
            return float("inf")
        since = max(since, seed.schedule.last_step)
    return since + WINDOWS.get(seed.stage, 0) * config.window


def _request(seed: Seed, operation: pb.SeedOperation, reason: int = 0, detail: str = "") -> pb.SeedRequest:
    request = pb.SeedRequest(seed_id=seed.seed_id, operation=operation, detail=detail)
    request.reason = reason  # type: ignore[assignment]
    return request
