"""Any host with an executor attached, for the tests of sites: one step at a time, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import esper
from esper.kasmina.executor import Executor
from esper.kasmina.gates.ablation import Holdout
from esper.kasmina.gates.evidence import Sources
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import FOSSILIZED
from esper.session import Session
from tests.seed_kit import APPLIED, SETTINGS, Op, held_out
from tests.session_kit import on_seed, order, own_optimizer, train

# Gates stand open as far as a size or a gain goes: what is tried here is whether a host can be grown at all.
OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
OPEN = replace(
    SETTINGS,
    window=4,
    blend_steps=2,
    rho_max=1e6,
    gradient_ratio_min=0.0,
    gradient_ratio_max=1e12,
    loss_variance_max=1e12,
    scale_drift_max=1e12,
    min_examples=2,
    min_gain=-1e12,
    latency_budget_ms=1e9,
)


def first_tensor(output: Any) -> Tensor:
    """What a loss can be made of, whatever kind of output it is in."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return first_tensor(next(iter(output.values())))
    return first_tensor(output[0])


def squares(output: Any) -> Tensor:
    """A loss per example that needs no targets."""
    return (first_tensor(output).float() - 1.0).flatten(1).square().mean(1)


@dataclass
class Plot:
    """A host in training on one batch, with an executor attached."""

    host: nn.Module
    inputs: Any
    sites: tuple[str, ...]
    loss: Callable[[Any], Tensor] = squares
    call: Callable[[nn.Module, Any], Any] = lambda host, inputs: host(inputs)
    lr: float = 0.0  # of the host: where it is 0, gradients can be compared with those of the host alone
    blueprints: Mapping[str, Blueprint] = field(default_factory=lambda: BLUEPRINTS)
    step: int = 0
    epoch: int = 0
    gradients: dict[str, Tensor] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        holdout = Holdout([(self.inputs, torch.empty(0))], lambda outputs, _: self.loss(outputs))
        self.executor = Executor(
            self.host,
            self.sites,
            run_id="test-00000000",
            settings=OPEN,
            blueprints=self.blueprints,
            sources=Sources(holdout=holdout),
        )

    def train(self, num_steps: int = 1) -> None:
        for _ in range(num_steps):
            self.step += 1
            self.executor.begin_step(self.step, self.epoch)
            loss = self.loss(self.call(self.host, self.inputs)).mean()
            torch.autograd.backward(loss)
            self._descend()
            self.executor.note_loss(loss)

    def _descend(self) -> None:
        named = [(name, p) for name, p in self.host.named_parameters() if p.grad is not None]
        self.gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
        self.executor.observe(self.gradients.values(), self.step)
        for seed_id, seed in self.executor.learning().items():
            if seed_id not in self.optimizers:
                self.optimizers[seed_id] = torch.optim.AdamW([p for _, p in seed.trainable()], lr=0.02)
            self.optimizers[seed_id].step()
            self.optimizers[seed_id].zero_grad()
        with torch.no_grad():
            for _, parameter in named:
                assert parameter.grad is not None
                parameter.sub_(self.lr * parameter.grad)
                parameter.grad = None

    def do(self, operation: pb.SeedOperation, seed_id: str = "s0", **fields: Any) -> None:
        command = pb.SeedCommand(seed_id=seed_id, operation=operation, **fields)
        outcome = self.executor.apply(command, self.step + 1, self.epoch)
        assert outcome.status == APPLIED, outcome

    def start(self, site: str, blueprint: str = "lora", seed_id: str = "s0") -> None:
        """A seed in TRAINING."""
        self.do(Op.SEED_OP_GERMINATE, seed_id, site=site, blueprint_id=blueprint)
        self.do(Op.SEED_OP_START_TRAINING, seed_id)

    def blend(self, seed_id: str = "s0") -> None:
        """On from TRAINING until alpha stands at 1."""
        self.train(12)
        self.do(Op.SEED_OP_START_GRAFTING, seed_id)
        self.train(12)

    def ripen(self, seed_id: str = "s0") -> None:
        """On from BLENDING to PROBATIONARY."""
        for operation in (Op.SEED_OP_STABILIZE, Op.SEED_OP_EVALUATE):
            self.do(operation, seed_id)
            self.train()


def alone(plot: Plot, other: nn.Module, num_steps: int = 1) -> Plot:
    """The same training of an equal host without sites."""
    bare = replace(plot, host=other, sites=(), step=0, epoch=0, gradients={}, optimizers={})
    bare.train(num_steps)
    return bare


def hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[object]:
    """Every hook that hangs on the model, its parameters or its optimizer."""
    owners: list[tuple[object, tuple[str, ...]]] = [(module, OF_MODULES) for module in model.modules()]
    owners += [(parameter, OF_TENSORS) for parameter in model.parameters()]
    for owner, names in [*owners, (optimizer, OF_OPTIMIZERS)]:
        for name in names:
            yield from (getattr(owner, name, None) or {}).values()


def attached(
    host: nn.Module,
    *sites: str,
    seeds_per_site: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
    **options: Any,
) -> Session:
    return esper.attach(
        host,
        optimizer=optimizer or torch.optim.SGD(host.parameters(), lr=0.01),
        sites=sites,
        required=False,
        settings=replace(OPEN, seeds_per_site=seeds_per_site),
        **{"holdout": (held_out().batches, held_out().loss_fn), **options},
    )


def start(run: Session, host: nn.Module, site: str, blueprint: str, seed: str) -> None:
    order(
        run,
        on_seed(Op.SEED_OP_GERMINATE, seed, site=site, blueprint_id=blueprint),
        own_optimizer(seed, 0.02),
        on_seed(Op.SEED_OP_START_TRAINING, seed),
    )
    train(run, host, 20)


def fossilize(run: Session, host: nn.Module, seed: str) -> None:
    for operation, num_steps in ((Op.SEED_OP_START_GRAFTING, 12), (Op.SEED_OP_STABILIZE, 1), (Op.SEED_OP_EVALUATE, 1)):
        order(run, on_seed(operation, seed))
        train(run, host, num_steps)
    order(run, on_seed(Op.SEED_OP_FOSSILIZE, seed))
    train(run, host, 1)
    assert [state.stage for state in run.executor.states() if state.seed_id == seed] == [FOSSILIZED]
