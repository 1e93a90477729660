"""A GPT-2 made from its config, and its training step: alone, with slots and seeds, with PEFT's adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.work.seeds.adapters import NAME, peft_of
from esper.bench.work.seeds.grown import grow
from esper.bench.work.teachers.modes import listed
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Seed
from esper.leyline.lifecycle import BLENDING, TRAINING

WIDTH, NUM_LAYERS, WORDS, LENGTH, BATCH = 128, 4, 512, 64, 4
SITES = [f"transformer.h.{at}.mlp.c_fc" for at in range(NUM_LAYERS)]
RATE = 1e-3
STAGES = {"training": TRAINING, "blending": BLENDING}


class Host:
    """In training by plain gradient descent on one batch of tokens, without dropout, so that arms can be compared."""

    def __init__(self) -> None:
        transformers: Any = import_module("transformers")
        torch.manual_seed(0)
        without = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": NUM_LAYERS, "n_head": 4}
        tokens = {"bos_token_id": None, "eos_token_id": None}
        self.model: nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens, **without))
        draw = torch.Generator().manual_seed(1)
        self.words = torch.randint(0, WORDS, (BATCH, LENGTH), generator=draw)
        self.inputs = torch.randn(BATCH, WIDTH, generator=draw)
        self.losses: list[float] = []

    def logits(self) -> Tensor:
        found: Tensor = self.model(input_ids=self.words, use_cache=False).logits
        return found

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Over what the model has when it takes its first step."""
        return torch.optim.SGD(self.model.parameters(), lr=RATE)

    def step(self) -> None:
        logits = self.logits()[:, :-1]
        loss = functional.cross_entropy(logits.reshape(-1, WORDS), self.words[:, 1:].reshape(-1))
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses = self.losses or [loss.item()]


def stepped(host: Host, call: Callable[[], object], adapters: Sequence[Tensor] = ()) -> Ready:
    """Answers with the loss of the one step that was taken, and the embedding after it. RuntimeError where one of the
    adapters, which begin at 0, has not learned in it."""

    def answer() -> Answer:
        if idle := sum(not bool(each.any()) for each in adapters):
            raise RuntimeError(f"{idle} of {len(adapters)} adapters have not learned")
        embedding = host.model.get_parameter("transformer.wte.weight")
        return [host.losses[0], *listed(embedding)]

    return Ready(call, answer)


def step_alone() -> Ready:
    host = Host()
    return stepped(host, host.step)


def step_slotted(stage: str) -> Ready:
    """With an executor that is told of each step, and a seed at each of four sites unless `stage` is "dormant"; seeds
    learn by the same rule as the host."""
    host, numbers = Host(), count(1)
    executor = an_executor(host)
    seeds = [grow(executor, site, STAGES[stage]) for site in SITES] if stage in STAGES else []
    own = [parameter for seed in seeds for _, parameter in seed.trainable()]
    optimizer = torch.optim.SGD(own, lr=RATE) if own else None

    def call() -> None:
        executor.begin_step(next(numbers), 0)
        host.step()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return stepped(host, call, last_of(seeds))


def step_adapted() -> Ready:
    """PEFT's LoRA at the same four sites; the host learns too, as beside seeds."""
    host = Host()
    peft_of(host.model, SITES, NAME)
    for parameter in host.model.parameters():
        parameter.requires_grad_(True)
    adapters = [host.model.get_parameter(f"{site}.lora_B.{NAME}.weight") for site in SITES]
    return stepped(host, host.step, adapters)


def an_executor(host: Host) -> Executor:
    """Which has seen every site."""
    executor = Executor(host.model, SITES, run_id="bench", settings=KasminaConfig())
    host.logits()
    return executor


def last_of(seeds: Iterable[Seed]) -> list[Tensor]:
    """The matrix of each that is 0 at first."""
    return [[parameter for _, parameter in seed.trainable()][-1] for seed in seeds]
