"""A new process goes on from the newest checkpoint as the old one would have."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from esper.kasmina.seeds.seed import Seed
from esper.leyline import contracts as pb
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.store import step_of
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer
from tests.checkpoint_kit import Training, resumed
from tests.seed_kit import Host, Op, batch, equal, loss_of, new_host
from tests.session_kit import own_optimizer


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resumed_run_trains_on_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    first = Training(tmp_path, optimizer=optimizer)
    first.raise_seed(fossilize=False)
    first.germinate("s1", "head", "lora")
    first.train(4)
    first.checkpoints.save(first.step)
    saved_at = first.step
    first.train(5)

    again = resumed(tmp_path, optimizer=optimizer)
    assert again.step == saved_at
    again.train(5)

    assert again.stages() == first.stages() == {"s0": "PROBATIONARY", "s1": "TRAINING"}
    assert equal(again.everything(), first.everything())


@pytest.mark.parametrize("fossilize", [False, True])
def test_what_was_resumed_is_resumed_again_before_it_has_trained(tmp_path: Path, fossilize: bool) -> None:
    first = Training(tmp_path)
    first.raise_seed(fossilize=fossilize)
    first.checkpoints.save(first.step)
    again = resumed(tmp_path)
    again.checkpoints.save(again.step)  # as a session does, where one is due before the step that it resumes at

    last = resumed(tmp_path)

    assert equal(last.everything(), first.everything())


@pytest.mark.parametrize("num_rounds", [0, 1])
def test_who_begins_again_and_again_at_one_step_keeps_the_older_checkpoints(tmp_path: Path, num_rounds: int) -> None:
    """Also a replica that hears of rounds that the others held without a command, before it had joined them."""
    Training(tmp_path, every=2).train(8)
    for _ in range(3):
        again = resumed(tmp_path, every=2)
        for _ in range(num_rounds):
            again.order()
        again.train(2)  # and it ends before the next one is due

    assert [step_of(path) for path in again.checkpoints.store.standing()] == [7, 5, 3]
    again.train(1)
    assert [step_of(path) for path in again.checkpoints.store.standing()] == [9, 7, 5]


class Residual(Host):
    """Writes to the input of a site once that has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.body = nn.Linear(8, 6), nn.Tanh()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y += self.body(y)
        z: Tensor = self.head(y)
        return z


def test_a_resumed_host_may_write_to_what_a_seed_was_given(tmp_path: Path) -> None:
    first = Training(tmp_path, new_host(Residual))
    first.train(1)
    first.germinate()
    first.train(2)
    first.checkpoints.save(first.step)
    first.train(3)

    again = resumed(tmp_path, host=new_host(Residual))
    again.train(3)

    assert again.stages() == first.stages() == {"s0": "TRAINING"}
    assert equal(again.everything(), first.everything())


def test_a_fossil_that_the_hosts_optimizer_can_not_step_stays_frozen(tmp_path: Path) -> None:
    first = Training(tmp_path, optimizer="lbfgs")
    first.raise_seed()
    assert first.stages() == {"s0": "FOSSILIZED"}
    first.checkpoints.save(first.step)
    first.train(3)

    again = resumed(tmp_path, optimizer="lbfgs")
    again.train(3)

    assert [name for name, each in again.host.named_parameters() if not each.requires_grad] == [
        name for name, _ in first.host.named_parameters() if "seed_s0" in name
    ]
    assert equal(again.everything(), first.everything())


@pytest.mark.parametrize(
    ("optimizer", "on_cpu"),
    [
        (partial(torch.optim.LBFGS, max_iter=2), {"H_diag", "ro", "al"}),
        (torch.optim.AdamW, {"step"}),
        (partial(torch.optim.AdamW, fused=True), set()),
    ],
    ids=["lbfgs", "adamw", "fused adamw"],
)
def test_on_another_device_moments_are_where_the_parameters_are(
    optimizer: Callable[..., torch.optim.Optimizer], on_cpu: set[str]
) -> None:
    first, again = new_host(), new_host().to("meta")
    trained, fresh = optimizer(first.parameters()), optimizer(again.parameters(), **({} if on_cpu else {"fused": None}))
    for step in (1, 2, 3):
        trained.step(partial(closure, first, trained, step))

    state_of(again, fresh).put_back(state_of(first, trained).dump(), {}, (), settings=True)

    held = [(name, tree_leaves(value)) for state in fresh.state.values() for name, value in state.items()]
    tensors = [(name, each) for name, values in held for each in values if isinstance(each, Tensor)]
    assert any(each.is_meta for _, each in tensors)
    assert {name for name, each in tensors if each.device.type == "cpu"} == on_cpu


def closure(host: Host, optimizer: torch.optim.Optimizer, step: int) -> float:
    optimizer.zero_grad()
    x, targets = batch(step)
    loss = loss_of(host(x), targets).mean()
    torch.autograd.backward(loss)
    return float(loss.detach())


def state_of(host: Host, optimizer: torch.optim.Optimizer) -> OptimizerState:
    def named() -> dict[str, Tensor]:
        return dict(host.named_parameters())

    around = Surroundings(model=host.named_parameters)
    return OptimizerState(Optimizers(optimizer, reduce=SeedReducer(), around=around), optimizer, named)


def test_a_fossil_is_part_of_the_resumed_model(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.raise_seed()
    first.checkpoints.save(first.step)
    first.train(3)

    again = resumed(tmp_path)
    again.train(3)

    assert again.stages() == first.stages() == {"s0": "FOSSILIZED"}
    assert any("seed_s0" in name for name in again.everything())
    assert equal(again.everything(), first.everything())


def test_a_resumed_seed_lives_on(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.raise_seed(fossilize=False)
    first.checkpoints.save(first.step)

    again = resumed(tmp_path)
    again.train(2)
    again.do(Op.SEED_OP_FOSSILIZE)
    again.train(1)

    assert again.stages() == {"s0": "FOSSILIZED"}
    history = [record.stage for record in again.executor.reports()[0].history]
    assert history[:-1] == [record.stage for record in first.executor.reports()[0].history]


def test_every_field_of_a_seed_is_kept_but_what_belongs_to_its_process(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.train(1)
    run.germinate()

    kept = run.executor.durable().dump()["seeds"]["s0"].keys()

    of_the_process = {"module", "region", "census", "unfreed", "graphs_seen", "seen"}
    assert {each.name for each in fields(Seed)} - kept <= of_the_process


def test_every_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.train(2)
    first.checkpoints.save(first.step)
    drawn = torch.rand(3).tolist(), random.random(), np.random.rand()

    resumed(tmp_path)

    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == drawn


def test_hyperparameters_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.optimizer.param_groups[0]["lr"] = 0.0125
    first.train(1)
    first.checkpoints.save(first.step)

    assert resumed(tmp_path).optimizer.param_groups[0]["lr"] == 0.0125


def test_what_was_commanded_of_optimizers_still_holds(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.train(1)
    first.germinate()
    first.order(own_optimizer("s0", 0.5))
    first.optimizers.adjust(pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": 0.03}))
    first.train(1)
    first.checkpoints.save(first.step)

    again = resumed(tmp_path)

    assert again.optimizers.generations == first.optimizers.generations
    assert again.optimizers.generations["s0"] > 1
    assert again.optimizers.hyperparameters() == first.optimizers.hyperparameters()
    assert again.optimizers.hyperparameters()["lr"] == 0.03


def test_without_any_checkpoint_the_run_begins(tmp_path: Path) -> None:
    assert Training(tmp_path).checkpoints.resume() is None
