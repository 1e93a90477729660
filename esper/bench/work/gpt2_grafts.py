"""A LoRA into a layer of a GPT-2 and out again: by ours, by PEFT, and by the least that torch allows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.work.gpt2 import NAME, RANK, SITES, WIDTH, Host, an_executor, peft_of
from esper.bench.work.grafts import Sites, list_of
from esper.bench.work.grown import learned, put_into
from esper.bench.work.teachers import listed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING

Op = pb.SeedOperation


class Garden(Sites):
    """An executor at four sites of the model."""

    def __init__(self) -> None:
        self.host = Host()
        super().__init__(an_executor(self.host), SITES)

    def added(self) -> list[float]:
        """What a learned seed, blended whole, adds to the output of its site."""
        seed, layer = self.executor.seeds[self.site], self.host.model.get_submodule(self.site)
        assert seed.module is not None  # it germinated
        learned(seed.module)
        put_into(seed, BLENDING, alpha=1.0)
        with torch.no_grad():
            return list_of(layer(self.host.inputs) - layer.forward(self.host.inputs))


def germinated_and_culled() -> Ready:
    """Both commands, gate G0 and both records."""
    garden = Garden()

    def call() -> None:
        garden.carry_out(Op.SEED_OP_GERMINATE)
        garden.carry_out(Op.SEED_OP_CULL)

    def answer() -> Answer:
        garden.next()
        garden.carry_out(Op.SEED_OP_GERMINATE)
        added = garden.added()
        garden.carry_out(Op.SEED_OP_CULL)
        return [added, plain(garden.host)]

    return Ready(call, answer, garden.next)


def added_and_deleted() -> Ready:
    """PEFT's: the layer stays wrapped after the first adapter, so that the later ones have less to do."""
    host, [site, *_] = Host(), SITES
    config, model = peft_of(host, [site], "first")
    model.delete_adapter("first")
    layer: Any = host.model.get_submodule(site)

    def add() -> None:
        model.peft_config[NAME] = config
        model.inject_adapter(host.model, NAME)

    def call() -> None:
        add()
        model.delete_adapter(NAME)

    def answer() -> Answer:
        add()
        model.set_adapter(NAME)
        for half in (layer.lora_A[NAME], layer.lora_B[NAME]):
            learned(half)
        with torch.no_grad():
            added = list_of(layer(host.inputs) - layer.base_layer(host.inputs))
        model.delete_adapter(NAME)
        return [added, plain(host)]

    return Ready(call, answer)


def hooked() -> Ready:
    """Two matrices made, and a hook registered and removed."""
    host, [site, *_] = Host(), SITES
    layer = host.model.get_submodule(site)

    def made() -> nn.Sequential:
        return nn.Sequential(nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, 4 * WIDTH, bias=False))

    def call() -> None:
        seed = made()
        layer.register_forward_hook(lambda module, args, h: h + seed(args[0])).remove()

    def answer() -> Answer:
        with torch.no_grad():
            return [list_of(learned(made())(host.inputs)), plain(host)]

    return Ready(call, answer)


@torch.no_grad()
def plain(host: Host) -> list[float]:
    """Of the model with nothing in it any more."""
    return listed(host.logits())
