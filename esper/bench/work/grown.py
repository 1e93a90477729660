"""Seeds put straight into a stage: what their gates would measure is no part of what is timed."""

from __future__ import annotations

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.executor import Executor
from esper.kasmina.seed import Moment, Seed
from esper.leyline import contracts as pb

ALPHA = 0.5


def grow(executor: Executor, site: str, stage: pb.SeedLifecycleStage) -> Seed:
    """A LoRA seed at a site that was seen. RuntimeError where it does not germinate."""
    operation = pb.SeedOperation.SEED_OP_GERMINATE
    command = pb.SeedCommand(seed_id=site, operation=operation, site=site, blueprint_id="lora")
    outcome = executor.apply(command, 0, 0)
    if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
        raise RuntimeError(f"seed at {site} did not germinate: {outcome.detail}")
    seed = executor.seeds[site]
    seed.record(stage, Moment(0, 0))
    seed.schedule = AlphaSchedule(ALPHA, ALPHA)
    seed.set_alpha(0)
    return seed
