"""A LoRA into a live model and out of it again: by ours, by PEFT, and by the least that torch allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.work.seeds.grafts import RANK, Nursery, Sites, list_of, matrices
from esper.bench.work.seeds.grown import learned
from esper.leyline import contracts as pb

NAME = "bench"
Op = pb.SeedOperation


def germinated_and_culled(is_pooled: bool) -> Ready:
    """`is_pooled`: the kernel was made between two steps before."""
    nursery = Nursery()
    return in_and_out(nursery, nursery.prepare if is_pooled else nursery.next)


def in_and_out(sites: Sites, before: Callable[[], None]) -> Ready:
    """Both commands, gate G0 and both records."""

    def call() -> None:
        sites.carry_out(Op.SEED_OP_GERMINATE)
        sites.carry_out(Op.SEED_OP_CULL)

    def answer() -> Answer:
        before()
        sites.carry_out(Op.SEED_OP_GERMINATE)
        added = sites.added()
        sites.carry_out(Op.SEED_OP_CULL)
        return [added, sites.output()]

    return Ready(call, answer, before)


def added_and_deleted() -> Ready:
    return by_peft(Nursery(), "0.0")


def by_peft(sites: Sites, target: str) -> Ready:
    """The layer stays wrapped after the first adapter, so that the later ones have less to do."""
    sites.executor.detach()
    config, model = peft_of(sites.model, [target], "first")
    model.delete_adapter("first")
    layer: Any = sites.model.get_submodule(target)

    def add() -> None:
        model.peft_config[NAME] = config
        model.inject_adapter(sites.model, NAME)

    def call() -> None:
        add()
        model.delete_adapter(NAME)

    def answer() -> Answer:
        add()
        model.set_adapter(NAME)
        for half in (layer.lora_A[NAME], layer.lora_B[NAME]):
            learned(half)
        with torch.no_grad():
            added = list_of(layer(sites.inputs) - layer.base_layer(sites.inputs))
        model.delete_adapter(NAME)
        return [added, sites.output()]

    return Ready(call, answer)


def peft_of(model: nn.Module, targets: Sequence[str], name: str) -> tuple[Any, Any]:
    """The configuration, and the tuner that has wrapped these layers; its quotient scales what is added by one."""
    peft: Any = import_module("peft")
    transposed = not isinstance(model.get_submodule(targets[0]), nn.Linear)
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=list(targets), fan_in_fan_out=transposed)
    return config, peft.LoraModel(model, config, name)


def hooked() -> Ready:
    return by_hook(Nursery(), "0.0")


def by_hook(sites: Sites, target: str) -> Ready:
    """Two matrices made, and a hook registered and removed. It answers with what two such matrices add, and with the
    host alone."""
    sites.executor.detach()
    layer = sites.model.get_submodule(target)
    num_in, num_out = sites.inputs.shape[-1], layer.get_parameter("bias").numel()

    def call() -> None:
        seed = matrices(num_in, num_out)
        layer.register_forward_hook(lambda module, args, h: h + seed(args[0])).remove()

    def answer() -> Answer:
        with torch.no_grad():
            return [list_of(learned(matrices(num_in, num_out))(sites.inputs)), sites.output()]

    return Ready(call, answer)
