"""Which optimizers attach() takes: one that holds nothing of the model is, as those may be copies, and is told of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from esper.errors import SettingError, TrainingError
from esper.session import Session
from tests.seed_kit import Host, Op, equal, new_host
from tests.session_kit import backward, on_seed, order, own_optimizer, unsteered


class Around(torch.optim.Optimizer):
    """One that steps another, as accelerate's; `state` is its own where it is Slow."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups, self.state = optimizer, optimizer.param_groups, optimizer.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class Slow(Around):
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.state = {each: {"slow": each.clone()} for group in self.param_groups for each in group["params"]}  # type: ignore[assignment]


class Unrated(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"beta": 10.0})


def test_one_around_another_is_refused_where_it_has_a_state_of_its_own() -> None:
    host = Host()
    below = torch.optim.SGD(host.parameters(), lr=0.1)

    with unsteered(host, Around(below), "body") as run:
        assert run.optimizer is below
    with pytest.raises(SettingError, match=r"^optimizer is 'Slow around SGD'; expected one that keeps its state in"):
        unsteered(host, Around(Slow(below)), "body")


class Sharp(torch.optim.Optimizer):
    """Sharpness-aware: up by the first gradient, down from where it was by the second one, without a step() itself."""

    def __init__(self, parameters: Any, **options: float) -> None:
        super().__init__(parameters, options)
        self.base_optimizer = torch.optim.SGD(self.param_groups, **options)  # type: ignore[arg-type]
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def up(self) -> None:
        for each in self.param_groups[0]["params"]:
            self.state[each]["old"] = each.clone()
            each.add_(0.05 * each.grad)
        self.zero_grad()

    @torch.no_grad()
    def down(self) -> None:
        for each in self.param_groups[0]["params"]:
            each.copy_(self.state[each]["old"])
        self.base_optimizer.step()
        self.zero_grad()


def sharp_step(host: Host, optimizer: Sharp, number: int) -> torch.Tensor:
    backward(host, number)
    optimizer.up()
    loss = backward(host, number)
    optimizer.down()
    return loss


def sharpen(run: Session, host: Host, optimizer: Sharp, num_steps: int) -> None:
    for _ in range(num_steps):
        with run.step() as step:
            step.loss(sharp_step(host, optimizer, run.step_number))


def test_below_one_that_steps_by_another_seeds_learn_and_the_host_trains_as_it_would_alone() -> None:
    host, alone = new_host(), new_host()
    optimizer, other = (Sharp(each.parameters(), lr=0.05, momentum=0.9) for each in (host, alone))
    run = unsteered(host, optimizer, "body")
    sharpen(run, host, optimizer, 1)
    germinate = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    order(run, germinate, on_seed(Op.SEED_OP_START_TRAINING), own_optimizer("s0", 0.02))

    sharpen(run, host, optimizer, 5)

    for number in range(1, 7):
        sharp_step(alone, other, number)
    assert equal(host.state_dict(), alone.state_dict())
    assert dict(run.executor.seeds["s0"].trainable())["up.weight"].any()  # begins as zeros


def test_one_without_a_rate_is_refused() -> None:
    host = Host()

    with pytest.raises(
        SettingError, match=r"^optimizer is \"Unrated, whose groups have no 'lr'\"; expected one with a"
    ):
        unsteered(host, Unrated(host.parameters()), "body")


@pytest.mark.parametrize("num_held", [0, 1])
def test_an_optimizer_that_holds_nothing_of_the_model_is_told_of(num_held: int) -> None:
    host, other = Host(), Host()
    held = [*host.parameters()][:num_held]
    optimizer = torch.optim.SGD([*held, *other.parameters()], lr=0.1)

    with capture_logs() as events, unsteered(host, optimizer, "body"):
        pass

    told = [each["not_held"] for each in events if each["event"] == "optimizer.foreign"]
    assert told == ([] if num_held else [", ".join(name for name, _ in host.named_parameters())])


@pytest.mark.parametrize("attached", ["body.weight", "head.bias"])
def test_one_that_steps_within_a_backward_is_named_in_the_first_step(attached: str) -> None:
    """As torch's own tutorial has it: an optimizer for each parameter, which the parameter's hook steps."""
    host = new_host()
    each = {name: torch.optim.SGD([parameter], lr=0.1) for name, parameter in host.named_parameters()}
    for name, parameter in host.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, own=each[name]: own.step())  # type: ignore[no-untyped-call]
    run = unsteered(host, each[attached], "body", "head")

    with pytest.raises(TrainingError, match="step 1: the optimizer steps within a backward"), run.step():
        backward(host, 1)
