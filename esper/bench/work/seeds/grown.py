"""Seeds put straight into a stage, and seeds as if they had learned: what no gate and no training is timed for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment, Seed
from esper.leyline import contracts as pb

ALPHA = 0.5
WEIGHT = 0.01  # of a learned seed: every parameter, whatever it was made with


def grow(executor: Executor, site: str, stage: pb.SeedLifecycleStage) -> Seed:
    """A LoRA seed at a site that was seen. RuntimeError where it does not germinate."""
    operation = pb.SeedOperation.SEED_OP_GERMINATE
    command = pb.SeedCommand(seed_id=site, operation=operation, site=site, blueprint_id="lora")
    outcome = executor.apply(command, 0, 0)
    if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
        raise RuntimeError(f"seed at {site} did not germinate: {outcome.detail}")
    seed = executor.seeds[site]
    put_into(seed, stage)
    return seed


def put_into(seed: Seed, stage: pb.SeedLifecycleStage, alpha: float = ALPHA) -> None:
    """Past its gates, with an alpha that stays."""
    seed.record(stage, Moment(0, 0))
    seed.schedule = AlphaSchedule(alpha, alpha)
    seed.set_alpha(0)


def learned(module: nn.Module) -> nn.Module:
    """As if it had: a seed that is new adds 0 and leaks 0, so that arms with it, without it, and with a faulty one
    would all come to the same."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(WEIGHT)
    return module


def with_all(seeds: Iterable[Seed], forward: Callable[[], Tensor]) -> Tensor:
    """What the forward gives. RuntimeError where it passes one of these seeds by."""
    modules, ran = {seed.seed_id: seed.module for seed in seeds if seed.module is not None}, set[str]()
    handles = [module.register_forward_hook(lambda *_, name=name: ran.add(name)) for name, module in modules.items()]
    try:
        output = forward()
    finally:
        for handle in handles:
            handle.remove()
    if missing := modules.keys() - ran:
        raise RuntimeError(f"the forward ran no seed at {', '.join(sorted(missing))}")
    return output
