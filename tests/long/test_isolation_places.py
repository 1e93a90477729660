"""Seeds at places that a network names itself, and in code that is compiled whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kasmina.executor import Executor
from esper.kasmina.slots.placeholder import GradientIsolatedSeed
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, SETTINGS, Op, equal

torch.set_num_threads(1)


class Network(nn.Module):
    """As in the validation document of Kasmina, smaller."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer1 = nn.Linear(12, 16)
        self.seed1 = GradientIsolatedSeed(chunk_size=8, seed_id="test_seed_1")
        self.layer2 = nn.Linear(16, 6)
        self.seed2 = GradientIsolatedSeed(chunk_size=3, seed_id="test_seed_2")
        self.output = nn.Linear(6, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.seed1(torch.relu(self.layer1(x)))
        x = self.seed2(torch.relu(self.layer2(x)))
        y: Tensor = self.output(x)
        return y


def gradients(network: nn.Module, call: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    network.zero_grad()
    x = torch.linspace(-1, 1, 48).reshape(4, 12)
    torch.autograd.backward(nn.functional.mse_loss(call(x), x))
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def grown(network: nn.Module, site: str, blueprint: Blueprint) -> Executor:
    """Beside a TRAINING seed."""
    beside = Executor(network, [site], run_id="r", settings=SETTINGS, blueprints={**BLUEPRINTS, "odd": blueprint})
    network(torch.ones(4, 12))
    for operation in (Op.SEED_OP_GERMINATE, Op.SEED_OP_START_TRAINING):
        command = pb.SeedCommand(seed_id="s0", operation=operation, site=site, blueprint_id="odd")
        outcome = beside.apply(command, 1, 0)
        assert outcome.status == APPLIED, outcome
    return beside


@pytest.mark.parametrize("site", ["seed1", "seed2"])
def test_a_named_place_is_the_identity_and_a_seed_there_is_isolated(site: str) -> None:
    network = Network()
    alone = gradients(network, network)

    beside = grown(network, site, BLUEPRINTS["mlp"])
    found = gradients(network, network)

    assert equal(found, alone) and len(found) == 6
    assert beside.seeds["s0"].gradients() and beside.seeds["s0"].violations == 0
    assert list(network.state_dict()) == [name for name, _ in network.named_parameters()]


def test_features_that_chunks_do_not_divide_are_refused_by_name() -> None:
    with pytest.raises(SettingError, match="features at s7 is 10; expected a multiple of chunk_size, 4"):
        GradientIsolatedSeed(4, "s7")(torch.ones(2, 10))
    with pytest.raises(SettingError, match="chunk_size is 0"):
        GradientIsolatedSeed(0, "s7")


class Late(nn.Module):
    """Reaches for the host's weight once it is armed, in the forward that is compiled."""

    def __init__(self, host: nn.Module) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))
        self.hold = [next(host.parameters())]
        self.arms = False

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.own * h * self.hold[0].sum() if self.arms else self.own * h


# torch's own tracer does what these two warn of, with autograd functions and behind a graph break.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_leak_in_a_host_that_is_compiled_whole_is_found_in_its_step() -> None:
    network = Network()
    beside = grown(network, "layer2", Blueprint("odd", (), lambda module, *_: Late(module), ""))
    seed, compiled = beside.seeds["s0"], torch.compile(network, backend="eager")
    assert isinstance(seed.module, Late)

    violations = []
    for step in (1, 2, SETTINGS.walk_every, SETTINGS.walk_every + 1, SETTINGS.walk_every + 2):
        seed.module.arms = step > 2
        beside.begin_step(step, 0)
        gradients(network, compiled)
        violations.append(seed.violations)
    beside.begin_step(SETTINGS.walk_every + 3, 0)

    assert violations == [0, 0, 1, 2, 3]
    assert [request.reason for request in beside.requests()] == [pb.ReasonCode.REASON_BREAKER_OPEN]
