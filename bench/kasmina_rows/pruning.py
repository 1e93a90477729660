"""Steps of a pruned model, and of one whose channels are weighed, beside other ways to hold weights at zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from esper.bench.arm import Ready
from esper.bench.work.hosts import Size
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.messages import bits_of
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb

WIDTH, NUM_LAYERS, BATCH = 512, 4, 128
CHANNEL = pb.PruningMaskType.PRUNING_MASK_CHANNEL
LAYER, WEIGHT = pb.PruningMaskType.PRUNING_MASK_LAYER, pb.PruningMaskType.PRUNING_MASK_UNSTRUCTURED
SIZE = Size(WIDTH, NUM_LAYERS, BATCH)
KEPT = torch.arange(WIDTH, device="cpu") % 4 > 0  # a quarter is pruned
LIFT = pb.StructuralPruningResponse(request_id="bench", rollback_required=True)


def bare() -> Ready:
    """The model whole, which comes to another loss than one that is pruned."""
    return Ready(Arm().turn)


def gated(what: str) -> Ready:
    match what:
        case "channels":
            return Gated.ready(masks())
        case "layer":
            return Ready(Gated(whole_layer(), layers=["0", "1"]).turn)
        case _:
            return Ready(Gated(single_weights(), weights=["4.weight"]).turn)


def read_once() -> Ready:
    """Gradients and weights of the model."""
    tensors = [each for p in SIZE.model().parameters() for each in (p.detach(), torch.ones_like(p))]
    return Ready(lambda: torch._foreach_norm(tensors))


def copied() -> Ready:
    """The weights that a command of masks keeps."""
    rows = torch.randn(NUM_LAYERS * int((~KEPT).sum()), WIDTH + 1)
    return Ready(rows.clone)


def changed(how: str) -> Ready:
    """One is timed, its undoing goes before it. RuntimeError where one of them is not applied."""
    pruning = Pruning(SIZE.model(), KasminaCheckpointPruningConfig(importance_every=0))
    ways = {"prune": masks(), "lift": LIFT}
    timed, other = ways.pop(how), *ways.values()

    def apply(command: pb.StructuralPruningResponse) -> None:
        outcome = pruning.apply(command, 1)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"masks were not changed: {outcome.detail}")

    if how == "prune":  # else there is nothing to lift
        apply(timed)
    return Ready(lambda: apply(timed), before=lambda: apply(other))


def layers(host: nn.Sequential) -> list[nn.Linear]:
    return [module for module in host.modules() if isinstance(module, nn.Linear)][:NUM_LAYERS]


class Arm:
    """A whole step: forward, backward, optimizer with momentum and decay."""

    def __init__(self) -> None:
        self.host = SIZE.model()
        self.optimizer = torch.optim.SGD(self.host.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
        self.inputs, self.targets = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))

    @classmethod
    def ready(cls, *given: Any) -> Ready:
        """To be compared by its loss."""
        arm = cls(*given)
        return Ready(arm.turn, arm.loss)

    def turn(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(self.host(self.inputs), self.targets))
        self.before()
        self.optimizer.step()
        self.after()

    def loss(self) -> float:
        """On the same batch, as the parameters are now."""
        return nn.functional.cross_entropy(self.host(self.inputs), self.targets).item()

    def before(self) -> None: ...

    def after(self) -> None: ...


class Gated(Arm):
    """Ours: outputs gated, weights held at zero after each optimizer step; importance measured every so many."""

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


class InPlace(Arm):
    """A pre-hook zeroes the weights before each forward, a tensor hook their gradients."""

    def __init__(self) -> None:
        super().__init__()
        rows = ~KEPT.to(self.inputs.device)
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
        kept = KEPT.float().to(self.inputs.device)
        for layer in layers(self.host):
            parametrize.register_parametrization(layer, "weight", Masked(kept[:, None]))
            parametrize.register_parametrization(layer, "bias", Masked(kept))


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
