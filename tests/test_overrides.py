"""What a command set wins over the user's scheduler until it is released, and leaves no trace then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from esper.leyline import contracts as pb
from tests.optimizer_kit import APPLIED, Seedling, adjustment, host, optimizers, step_host
from tests.session_kit import unsteered


def test_an_override_wins_over_a_scheduler_until_it_is_released() -> None:
    model, optimizer = host(lr=1.0, momentum=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    governed = optimizers(optimizer)

    rates = []
    for step in range(6):
        if step == 2:
            assert governed.adjust(adjustment("host", lr=7.0)).status == APPLIED
            assert governed.hyperparameters()["lr"] == 7.0
        if step == 4:
            governed.adjust(adjustment("host", release=("lr",)))
        before = model.bias.detach().clone()
        step_host(model, optimizer)
        rates.append(float((before - model.bias.detach())[0]))  # its gradient is 1
        scheduler.step()

    assert rates == pytest.approx([1.0, 0.5, 7.0, 7.0, 0.0625, 0.03125], rel=1e-4)


def test_an_override_does_not_lead_a_recursive_scheduler_astray() -> None:
    (model, optimizer), (twin, alone) = host(), host()
    steered = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(alone, 10)
    governed = optimizers(optimizer)
    governed.adjust(adjustment("host", lr=5.0, momentum=0.0))

    for _ in range(4):
        step_host(model, optimizer)
        step_host(twin, alone)
        steered.step()
        reference.step()
    governed.adjust(adjustment("host", release=("lr", "momentum")))

    assert governed.hyperparameters()["lr"] == alone.param_groups[0]["lr"]
    assert governed.hyperparameters()["momentum"] == 0.9


def test_an_override_of_a_beta_reaches_a_seed() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)

    governed.adjust(adjustment("s0", beta1=0.5, lr=0.25))

    assert governed.hyperparameters("s0") == pytest.approx(
        {"lr": 0.25, "weight_decay": 0.01, "beta1": 0.5, "beta2": 0.999, "eps": 1e-8}
    )


def test_between_steps_the_groups_hold_the_very_numbers_of_the_script() -> None:
    model, _ = host()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1)
    governed = optimizers(optimizer)
    before = repr({name: each for name, each in optimizer.param_groups[0].items() if name != "params"})

    governed.adjust(adjustment("host", lr=0.5, weight_decay=0.1))
    step_host(model, optimizer)

    assert repr({name: each for name, each in optimizer.param_groups[0].items() if name != "params"}) == before


def test_a_closure_that_raises_leaves_the_scripts_values_in_the_groups() -> None:
    model, optimizer = host(lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    governed = optimizers(optimizer)
    governed.adjust(adjustment("host", lr=7.0))

    def closure() -> float:
        raise ValueError(optimizer.param_groups[0]["lr"])

    with pytest.raises(ValueError, match="7"):
        optimizer.step(closure)
    scheduler.step()
    step_host(model, optimizer)

    assert optimizer.param_groups[0]["lr"] == 0.5


class Scaled(torch.optim.SGD):
    """One whose step takes its closure by another name, and more behind it."""

    def step(self, compute: Callable[[], float], scale: float = 1.0) -> float:  # type: ignore[override]
        loss = compute() * scale
        super().step()
        return loss


def test_a_step_gets_all_that_it_was_given_besides_the_closure() -> None:
    model, _ = host()
    optimizer = Scaled(model.parameters(), lr=1.0)
    governed = optimizers(optimizer)
    governed.adjust(adjustment("host", lr=7.0))

    loss = optimizer.step(lambda: float(optimizer.param_groups[0]["lr"]), 0.5)

    assert loss == 3.5


class Words(nn.Module):
    """Its table has sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 2)


def test_a_decay_is_refused_where_the_optimizer_steps_sparse_gradients() -> None:
    words = Words()
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
    run = unsteered(words, optimizer, "head")
    commands = (adjustment("host", weight_decay=0.5, lr=0.2), adjustment("host", weight_decay=0.0, lr=0.2))

    with_decay, without = [run.optimizers.adjust(each) for each in commands]

    why = "gradients of table.weight are sparse"
    assert (with_decay.reason, why in with_decay.detail) == (pb.ReasonCode.REASON_OUT_OF_RANGE, True)
    assert without.status == APPLIED
    torch.autograd.backward(words.head(words.table(torch.tensor([1, 3]))).square().mean())
    optimizer.step()  # torch would raise


def test_a_decay_is_taken_where_another_optimizer_steps_sparse_gradients() -> None:
    words = Words()
    run = unsteered(words, torch.optim.SGD(words.head.parameters(), lr=0.1), "head")

    assert run.optimizers.adjust(adjustment("host", weight_decay=0.5)).status == APPLIED
