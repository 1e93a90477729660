"""A LoRA into a live model and out of it again: by ours, by PEFT, and by the least that torch allows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

from esper.bench.arm import Ready
from esper.bench.work.grafts import Nursery
from esper.leyline import contracts as pb

CULL = pb.SeedOperation.SEED_OP_CULL
NAME = "bench"


def germinated_and_culled(is_pooled: bool) -> Ready:
    """Both commands, gate G0 and both records. `is_pooled`: the kernel was made between two steps before."""
    nursery = Nursery()

    def cull() -> None:
        outcome = nursery.executor.apply(pb.SeedCommand(seed_id=nursery.site, operation=CULL), 0, 0)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"seed at {nursery.site} was not culled: {outcome.detail}")

    def call() -> None:
        nursery.germinate()
        cull()

    def answer() -> list[list[float]]:
        nursery.next()
        return [_with(nursery, nursery.germinate), _with(nursery, cull)]

    return Ready(call, answer, before=nursery.prepare if is_pooled else nursery.next)


def added_and_deleted() -> Ready:
    """PEFT's LoraModel: the layer stays wrapped after the first adapter, so that the later ones have less to do."""
    peft: Any = import_module("peft")
    nursery = Nursery()
    nursery.executor.detach()
    config = peft.LoraConfig(r=4, target_modules=["0.0"])
    model = peft.LoraModel(nursery.host, config, "first")
    model.delete_adapter("first")

    def add() -> None:
        model.peft_config[NAME] = config
        model.inject_adapter(nursery.host, NAME)

    def delete() -> None:
        model.delete_adapter(NAME)

    def call() -> None:
        add()
        delete()

    def answer() -> list[list[float]]:
        return [_with(nursery, add), _with(nursery, delete)]

    return Ready(call, answer)


def hooked() -> Ready:
    """Two matrices made, and a hook registered and removed."""
    layer = nn.Linear(128, 128)

    def call() -> None:
        seed = nn.Sequential(nn.Linear(128, 4, bias=False), nn.Linear(4, 128, bias=False))
        handle = layer.register_forward_hook(lambda module, args, h: h + seed(args[0]))
        handle.remove()

    return Ready(call)


def _with(nursery: Nursery, change: Callable[[], object]) -> list[float]:
    change()
    return nursery.output()
