"""A LoRA into a live model and out of it again: by ours, by PEFT, and by the least that torch allows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

from esper.bench.arm import Ready
from esper.bench.work.grafts import WIDTH, Nursery, list_of
from esper.bench.work.grown import learned
from esper.leyline import contracts as pb

CULL = pb.SeedOperation.SEED_OP_CULL
NAME = "bench"


def germinated_and_culled(is_pooled: bool) -> Ready:
    """Both commands, gate G0 and both records. `is_pooled`: the kernel was made between two steps before."""
    nursery = Nursery()
    before = nursery.prepare if is_pooled else nursery.next

    def cull() -> None:
        outcome = nursery.executor.apply(pb.SeedCommand(seed_id=nursery.site, operation=CULL), 0, 0)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"seed at {nursery.site} was not culled: {outcome.detail}")

    def call() -> None:
        nursery.germinate()
        cull()

    def answer() -> list[list[float]]:
        before()
        nursery.germinate()
        added = nursery.added()
        cull()
        return [added, nursery.output()]

    return Ready(call, answer, before)


def added_and_deleted() -> Ready:
    """PEFT's LoraModel: the layer stays wrapped after the first adapter, so that the later ones have less to do."""
    peft: Any = import_module("peft")
    nursery = Nursery()
    nursery.executor.detach()
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["0.0"])  # whose quotient scales what it adds
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

    def added() -> list[float]:
        model.set_adapter(NAME)
        layer: Any = nursery.blocks[0][0]
        for half in (layer.lora_A[NAME], layer.lora_B[NAME]):
            learned(half)
        with torch.no_grad():
            return list_of(layer(nursery.inputs) - layer.base_layer(nursery.inputs))

    def answer() -> list[list[float]]:
        add()
        found = added()
        delete()
        return [found, nursery.output()]

    return Ready(call, answer)


def hooked() -> Ready:
    """Two matrices made, and a hook registered and removed. It answers with what two such matrices add, and with the
    host alone."""
    layer, nursery = nn.Linear(WIDTH, WIDTH), Nursery()
    nursery.executor.detach()

    def made() -> nn.Sequential:
        return nn.Sequential(nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False))

    def call() -> None:
        seed = made()
        handle = layer.register_forward_hook(lambda module, args, h: h + seed(args[0]))
        handle.remove()

    def answer() -> list[list[float]]:
        with torch.no_grad():
            return [list_of(learned(made())(nursery.inputs)), nursery.output()]

    return Ready(call, answer)
