"""What masks and importance add to a training step, beside other ways to hold weights at zero and the bytes moved."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from esper.bench.figures import Figure
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.messages import bits_of
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from report import Report, quantile

WIDTH, NUM_LAYERS, BATCH, WARM = 512, 4, 128, 20
CHANNEL = pb.PruningMaskType.PRUNING_MASK_CHANNEL
LAYER, WEIGHT = pb.PruningMaskType.PRUNING_MASK_LAYER, pb.PruningMaskType.PRUNING_MASK_UNSTRUCTURED
KEPT = torch.arange(WIDTH) % 4 > 0  # a quarter is pruned
BARE = "bare step"

Turn = Callable[[int], None]


def measure(report: Report, quick: bool) -> None:
    num = 40 if quick else 2_000
    arms: dict[str, Turn] = {
        BARE: Arm().turn,
        "bare step, again": Arm().turn,
        "gates on outputs": Gated(masks()).turn,
        "a whole layer": Gated(whole_layer(), layers=["0", "1"]).turn,
        "5,120 single weights": Gated(single_weights(), weights=["4.weight"]).turn,
        "weights in place": InPlace().turn,
        "parametrize": Parametrized().turn,
    }
    samples = rounds(arms, num)
    report.add_arms("pruned step", samples, "ms", against=BARE)
    arms = {BARE: Arm().turn, "bare step, again": Arm().turn}
    arms |= {f"importance every {every}": Measuring(every).turn for every in (1, 8, 32)}
    samples = rounds(arms, num)
    report.add_arms("measured step", samples, "ms", against=BARE)
    over = quantile(samples["importance every 1"], 0.5) - quantile(samples[BARE], 0.5)
    report.put(Figure("importance of 1 M weights", "update", "p50", over, "ms", num, label="derived"))
    report.put(Figure("importance of 1 M weights", "reading them once", "p50", reading_ms(), "ms", num))
    change(report, 40 if quick else 500)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(NUM_LAYERS)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 10))


def layers(host: nn.Sequential) -> list[nn.Linear]:
    return [module for module in host.modules() if isinstance(module, nn.Linear)][:NUM_LAYERS]


class Arm:
    """A whole step: forward, backward, optimizer with momentum and decay."""

    def __init__(self) -> None:
        self.host = model()
        self.optimizer = torch.optim.SGD(self.host.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
        self.inputs, self.targets = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))

    def turn(self, step: int) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(self.host(self.inputs), self.targets))
        self.before()
        self.optimizer.step()
        self.after()

    def before(self) -> None: ...

    def after(self) -> None: ...


class Gated(Arm):
    """Ours: outputs gated, weights held at zero after each optimizer step."""

    def __init__(self, command: pb.StructuralPruningResponse | None, every: int = 0, **named: Any) -> None:
        super().__init__()
        settings = replace(KasminaCheckpointPruningConfig(importance_every=every, watch_steps=1), **named)
        self.pruning = Pruning(self.host, settings)
        if command is not None:
            assert self.pruning.apply(command, 0).status == pb.ReceiptStatus.RECEIPT_APPLIED
            self.pruning.begin_step(1)  # the watch ends: what stays is what a pruned run pays for good

    def before(self) -> None:
        self.pruning.before_optimizer_step(self.optimizer)

    def after(self) -> None:
        self.pruning.after_optimizer_step()


class Measuring(Gated):
    """Nothing pruned, importance measured every so many steps."""

    def __init__(self, every: int) -> None:
        super().__init__(None, every=every)


class InPlace(Arm):
    """A pre-hook zeroes the weights before each forward, a tensor hook their gradients."""

    def __init__(self) -> None:
        super().__init__()
        rows = ~KEPT
        for layer in layers(self.host):
            layer.register_forward_pre_hook(lambda module, _: zero(module, rows))
            layer.weight.register_hook(lambda gradient: gradient.masked_fill(rows[:, None], 0))  # type: ignore[no-untyped-call]
            layer.bias.register_hook(lambda gradient: gradient.masked_fill(rows, 0))  # type: ignore[no-untyped-call]


def zero(module: nn.Module, rows: Tensor) -> None:
    module.get_parameter("weight").data.masked_fill_(rows[:, None], 0)
    module.get_parameter("bias").data.masked_fill_(rows, 0)


class Masked(nn.Module):
    """A parametrization by a product."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


class Parametrized(Arm):
    """torch.nn.utils.parametrize, which renames the parameters."""

    def __init__(self) -> None:
        super().__init__()
        for layer in layers(self.host):
            parametrize.register_parametrization(layer, "weight", Masked(KEPT.float()[:, None]))
            parametrize.register_parametrization(layer, "bias", Masked(KEPT.float()))


def masks() -> pb.StructuralPruningResponse:
    every = [
        pb.PruningMask(parameter=f"{at}.0.weight", mask_type=CHANNEL, kept=bits_of(KEPT), num_channels=WIDTH)
        for at in range(NUM_LAYERS)
    ]
    return commanded(*every)


def whole_layer() -> pb.StructuralPruningResponse:
    return commanded(pb.PruningMask(parameter="1", mask_type=LAYER, kept=b"\0", num_channels=1))


def single_weights() -> pb.StructuralPruningResponse:
    """A quarter of the last layer's."""
    kept = torch.arange(10 * WIDTH) % 4 > 0
    mask = pb.PruningMask(parameter="4.weight", mask_type=WEIGHT, kept=bits_of(kept), num_channels=len(kept))
    return commanded(mask)


def commanded(*pruned: pb.PruningMask) -> pb.StructuralPruningResponse:
    return pb.StructuralPruningResponse(request_id="bench", validation_passed=True, pruning_masks=pruned)


def change(report: Report, num: int) -> None:
    """What a command and its undoing cost, beside copying the weights that they keep."""
    lift = pb.StructuralPruningResponse(request_id="bench", rollback_required=True)
    pruning, command = Pruning(model(), KasminaCheckpointPruningConfig(importance_every=0)), masks()
    rows = torch.randn(NUM_LAYERS * int((~KEPT).sum()), WIDTH + 1)
    samples: dict[str, list[float]] = {"prune 512 channels": [], "lift them": [], "copying their weights": []}
    prune, undo = partial(pruning.apply, command, 1), partial(pruning.apply, lift, 1)
    calls: tuple[Callable[[], object], ...] = (prune, undo, rows.clone)
    for _ in range(num):
        for values, call in zip(samples.values(), calls, strict=True):
            values.append(timed_ms(call))
    report.add_arms("change of masks", samples, "ms", against="copying their weights")


def reading_ms() -> float:
    """Gradients and weights of the model, read once."""
    tensors = [each for p in model().parameters() for each in (p.detach(), torch.ones_like(p))]
    return quantile([timed_ms(lambda: torch._foreach_norm(tensors)) for _ in range(50)], 0.5)


def timed_ms(call: Callable[[], object]) -> float:
    begun = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begun) / 1e6


def rounds(arms: dict[str, Turn], num: int) -> dict[str, list[float]]:
    """Milliseconds a step; a round gives every arm one step, in an order drawn anew."""
    draw, order = random.Random(0), list(arms)
    samples: dict[str, list[float]] = {arm: [] for arm in arms}
    for step in range(WARM + num):
        draw.shuffle(order)
        for arm in order:
            taken = timed_ms(partial(arms[arm], step))
            if step >= WARM:
                samples[arm].append(taken)
    return samples
