"""A host, its data and a seed's commands, for the tests of slots and executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.gates.ablation import Holdout
from esper.kasmina.gates.evidence import Sources
from esper.kasmina.moves import Outcome
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb

# Tensors this small gain nothing from threads, which spin for milliseconds each where cores are shared.
torch.set_num_threads(1)

Op = pb.SeedOperation
Reason = pb.ReasonCode
APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
SETTINGS = KasminaConfig(window=10, blend_steps=5, embargo_epochs=2, latency_budget_ms=1e4)


class Host(nn.Module):
    """Two layers, with an in-place activation right behind each site."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.act(self.body(x)))
        return y


class TupleHost(Host):
    """Its body gives a tuple whose first entry goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Pair()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        first, extra = self.body(x)
        y: Tensor = self.head(self.act(first)) + extra
        return y


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), x[:, :3]


class Bypassing(Host):
    """Reads its head's weight without calling it, as some fast paths do."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.act(self.body(x)), self.head.weight, self.head.bias)


def new_host(kind: type[Host] = Host) -> Host:
    torch.manual_seed(3)
    return kind()


def batch(step: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Inputs and classes; a function of the step alone."""
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(size, 8, generator=generator)
    classes = ((x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long()).long()
    return x, classes


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def held_out(num_batches: int = 4) -> Holdout:
    return Holdout([batch(-100 - i, 128) for i in range(num_batches)], loss_of)


def optimizer_of(name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    if name == "lbfgs":
        return torch.optim.LBFGS(parameters, lr=0.1, max_iter=1)
    return torch.optim.AdamW(parameters, lr=0.01)


@dataclass
class Bench:
    """A host in training with an executor attached."""

    host: Host = field(default_factory=new_host)
    settings: KasminaConfig = SETTINGS
    sites: tuple[str, ...] = ("body", "head")
    holdout: Holdout | None = field(default_factory=held_out)
    blueprints: Mapping[str, Blueprint] = field(default_factory=lambda: BLUEPRINTS)
    optimizer_name: str = "sgd"
    host_lr: float | None = None
    seed_lr: float = 0.02
    step: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.executor = Executor(
            self.host,
            self.sites,
            run_id="test-00000000",
            settings=self.settings,
            blueprints=self.blueprints,
            sources=Sources(holdout=self.holdout),
        )
        self.optimizer = optimizer_of(self.optimizer_name, list(self.host.parameters()))
        if self.host_lr is not None:
            self.optimizer.param_groups[0]["lr"] = self.host_lr
        self.seed_optimizers: dict[str, torch.optim.Optimizer] = {}
        self.executor.follow_optimizers(lambda seed_id: seed_id in self.seed_optimizers)

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.step += 1
            self.executor.begin_step(self.step, self.epoch)
            x, targets = batch(self.step)
            loss = loss_of(self.host(x), targets).mean()
            torch.autograd.backward(loss)
            self._step_all()
            self.executor.note_loss(loss)

    def _step_all(self) -> None:
        self.executor.observe([p.grad for p in self.host.parameters() if p.grad is not None], self.step)
        for seed_id, seed in self.executor.learning().items():
            parameters = [parameter for _, parameter in seed.trainable()]
            if seed_id not in self.seed_optimizers:
                self.seed_optimizers[seed_id] = torch.optim.AdamW(parameters, lr=self.seed_lr)
            self.seed_optimizers[seed_id].step()
            self.seed_optimizers[seed_id].zero_grad()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def do(self, operation: pb.SeedOperation, seed_id: str = "s0", **parameters: float) -> Outcome:
        command = pb.SeedCommand(seed_id=seed_id, operation=operation, parameters=parameters)
        outcome = self.executor.apply(command, self.step + 1, self.epoch)
        if outcome.culled:
            self.seed_optimizers.pop(seed_id, None)
        return outcome

    def germinate(
        self, site: str = "body", blueprint: str = "mlp", seed_id: str = "s0", **parameters: float
    ) -> Outcome:
        command = pb.SeedCommand(
            seed_id=seed_id, operation=Op.SEED_OP_GERMINATE, site=site, blueprint_id=blueprint, parameters=parameters
        )
        return self.executor.apply(command, self.step + 1, self.epoch)

    def raise_seed(self, stage: str, site: str = "body", blueprint: str = "mlp") -> None:
        """Take s0 to GERMINATED, TRAINING, BLENDING, SHADOWING or PROBATIONARY, with the steps that each needs."""
        self.train(1)
        moves: list[tuple[str, pb.SeedOperation, int]] = [
            ("TRAINING", Op.SEED_OP_START_TRAINING, 30),
            ("BLENDING", Op.SEED_OP_START_GRAFTING, 12),
            ("SHADOWING", Op.SEED_OP_STABILIZE, 3),
            ("PROBATIONARY", Op.SEED_OP_EVALUATE, 1),
        ]
        assert self.germinate(site, blueprint).status == APPLIED
        for name, operation, num_steps in moves:
            if self.stage() == stage:
                return
            outcome = self.do(operation)
            assert outcome.status == APPLIED, outcome
            self.train(num_steps)
            if name == stage:
                return

    def stage(self, seed_id: str = "s0") -> str:
        for state in self.executor.states():
            if state.seed_id == seed_id:
                return pb.SeedLifecycleStage.Name(state.stage).removeprefix("SEED_STAGE_")
        return "DORMANT"

    def gradients(self, step: int) -> dict[str, Tensor]:
        """Of the host, for the batch of this step, before anything is stepped."""
        self.host.zero_grad()
        x, targets = batch(step)
        torch.autograd.backward(loss_of(self.host(x), targets).mean())
        found = {name: p.grad.clone() for name, p in self.host.named_parameters() if p.grad is not None}
        self.host.zero_grad()
        return found


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    """Bit-identical, names included."""
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype and a[name].stride() == b[name].stride()
        for name in a
    )
