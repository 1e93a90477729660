"""Models with everything that can be pruned, and commands that prune it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.messages import bits_of
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import CHANNEL, HEAD
from esper.leyline import contracts as pb

torch.set_num_threads(1)

APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED


class Backwards(nn.Module):
    """A linear layer whose weight lies as in GPT-2: shape [inputs, outputs]."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Zoo(nn.Module):
    """Images [n, 3, 8, 8] to [n, 5], through two convolutions, an attention and two kinds of linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 6, 3, padding=1)
        self.line = nn.Conv1d(6, 8, 3, padding=1, bias=False)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.backwards = Backwards(12, 8)
        self.mix = nn.Linear(12, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.line(self.image(x).flatten(2))).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        y: Tensor = self.head(torch.relu(self.mix(torch.tanh(self.backwards(x)))).mean(1))
        return y


HEADS = {"mix": 3}  # its twelve inputs are three heads of four


def new_zoo() -> Zoo:
    torch.manual_seed(11)
    return Zoo()


def images(step: int, size: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, 3, 8, 8, generator=generator), torch.randint(0, 5, (size,), generator=generator)


def backward(model: nn.Module, step: int) -> Tensor:
    inputs, classes = images(step)
    loss = nn.functional.cross_entropy(model(inputs), classes)
    torch.autograd.backward(loss)
    return loss


def mask(
    parameter: str, pruned: Sequence[int], num: int, mask_type: pb.PruningMaskType = CHANNEL, dim: int = 0
) -> pb.PruningMask:
    kept = torch.ones(num, dtype=torch.bool)
    kept[list(pruned)] = False
    return pb.PruningMask(parameter=parameter, mask_type=mask_type, dim=dim, kept=bits_of(kept), num_channels=num)


def response(*masks: pb.PruningMask) -> pb.StructuralPruningResponse:
    return pb.StructuralPruningResponse(request_id="r1", validation_passed=True, pruning_masks=masks)


def lift(reason: str = "") -> pb.StructuralPruningResponse:
    return pb.StructuralPruningResponse(request_id="r1", rollback_required=True, rollback_reason=reason)


SETTINGS = KasminaCheckpointPruningConfig(heads=HEADS, importance_every=0)
EVERYTHING = response(
    mask("image.weight", [1, 4], 6),
    mask("line.weight", [0], 8),
    mask("attention.out_proj.weight", [2], 4, HEAD, dim=1),
    mask("backwards.weight", [3, 5], 12, dim=1),
    mask("mix.weight", [0, 7], 8),
    mask("mix.weight", [1], 3, HEAD, dim=1),
)
LR, DECAY = 0.05, 0.3
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, nesterov=True, lr=LR, weight_decay=DECAY),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=LR, weight_decay=DECAY),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True, lr=LR, weight_decay=DECAY),
}


def pruned_entries(model: nn.Module, of: Callable[[nn.Parameter], Tensor | None]) -> Tensor:
    """Every weight, or gradient, that EVERYTHING has pruned, in one row."""
    shares: list[tuple[str, object]] = [
        ("image.weight", [1, 4]),
        ("image.bias", [1, 4]),
        ("line.weight", [0]),
        ("attention.in_proj_weight", [4, 5, 12, 13, 20, 21]),
        ("attention.in_proj_bias", [4, 5, 12, 13, 20, 21]),
        ("attention.out_proj.weight", (slice(None), [4, 5])),
        ("backwards.weight", (slice(None), [3, 5])),
        ("backwards.bias", [3, 5]),
        ("mix.weight", [0, 7]),
        ("mix.bias", [0, 7]),
        ("mix.weight", (slice(None), slice(4, 8))),
    ]
    found = []
    for name, where in shares:
        tensor = of(model.get_parameter(name))
        assert tensor is not None
        found.append(tensor[where].flatten())  # type: ignore[index]
    return torch.cat(found)


def train(model: nn.Module, pruning: Pruning, optimizer: torch.optim.Optimizer, first: int, num: int) -> None:
    for step in range(first, first + num):
        pruning.begin_step(step)
        optimizer.zero_grad()
        backward(model, step)
        pruning.before_optimizer_step(optimizer)
        optimizer.step()
        pruning.after_optimizer_step()


def pruned_zoo() -> tuple[Zoo, Pruning]:
    """Of EVERYTHING, and not trained yet."""
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    assert pruning.apply(EVERYTHING, 1).status == APPLIED
    return model, pruning


WATCHED = KasminaCheckpointPruningConfig(heads=HEADS, check_every=1, watch_steps=20)
CHANGE = response(
    mask("image.weight", [1, 4], 6),
    mask("attention.out_proj.weight", [2], 4, HEAD, dim=1),
    mask("mix.weight", [0, 7], 8),
    mask("mix.weight", [1], 3, HEAD, dim=1),
)


class Dictated:
    """A model whose gradients a test writes."""

    def __init__(self, settings: KasminaCheckpointPruningConfig = WATCHED) -> None:
        self.model, self.number = new_zoo(), 0
        self.pruning = Pruning(self.model, settings)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, fused=True)

    def step(self, gradient: float = 1.0, num: int = 1) -> None:
        for _ in range(num):
            self.number += 1
            self.pruning.begin_step(self.number)
            for parameter in self.model.parameters():
                parameter.grad = torch.full_like(parameter, gradient)
            self.pruning.before_optimizer_step(self.optimizer)
            self.optimizer.step()
            self.pruning.after_optimizer_step()

    def prune(self, change: pb.StructuralPruningResponse = CHANGE) -> None:
        outcome = self.pruning.apply(change, self.number + 1)
        assert outcome.status == APPLIED, outcome.detail

    def weights(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}
