"""The examples, one for each common way of training: steps are cut right, and seeds grow in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from lightning.pytorch import Callback
from transformers import TrainerCallback

import esper
from esper.examples import digits, hf_trainer, lightning_loop, plain_loop
from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.lightning import SteeringCallback as ForLightning
from esper.session.trainer import SteeringCallback as ForTrainer
from tests.seed_kit import Op
from tests.session_kit import Command, on_seed, order, own_optimizer
from tests.site_kit import OPEN
from tests.test_sites_detach import hooks

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
SETTINGS = replace(OPEN, rho=0.3, window=10)
Script = Mapping[int, Sequence[Command]]


@pytest.fixture(autouse=True)
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    torch.set_num_threads(1)


def script(site: str) -> Script:
    """A seed's life: step after which -> what is ordered."""
    germinate = on_seed(Op.SEED_OP_GERMINATE, site=site, blueprint_id="lora")
    return {
        2: [germinate, own_optimizer("s0", 0.02), on_seed(Op.SEED_OP_START_TRAINING)],
        32: [on_seed(Op.SEED_OP_START_GRAFTING)],
        48: [on_seed(Op.SEED_OP_STABILIZE)],
        50: [on_seed(Op.SEED_OP_EVALUATE)],
        52: [on_seed(Op.SEED_OP_FOSSILIZE)],
    }


def follow(run: Session | None, done: int, orders: Script) -> None:
    """Hand in what is due before the next step."""
    if run is not None and done in orders:
        order(run, *orders[done])


def told(run: Session | None) -> tuple[Session, pb.WorkerReport]:
    assert run is not None
    return run, run.close()


def grew(report: pb.WorkerReport) -> bool:
    return [pb.SeedLifecycleStage.Name(seed.stage) for seed in report.seeds] == ["SEED_STAGE_FOSSILIZED"]


def test_a_plain_loop_trains_steered_by_nobody() -> None:
    assert plain_loop.train(3) > 0.3


class OrdersOfTrainer(TrainerCallback):
    """Stands in for a controller."""

    def __init__(self, steering: ForTrainer, orders: Script) -> None:
        self.steering, self.orders = steering, orders

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        follow(self.steering.run, state.global_step, self.orders)


def test_a_seed_grows_under_the_trainer_of_transformers() -> None:
    data = digits.Digits.load(torch.device("cpu"))
    steering = hf_trainer.steering(data, settings=SETTINGS)

    trainer = hf_trainer.train(56, [steering, OrdersOfTrainer(steering, script("classifier"))], data)

    run, report = told(steering.run)
    assert (report.steps, trainer.state.global_step) == (56, 56)
    assert report.epochs == 2  # 1,077 examples, 32 a step; the second was cut short
    assert run.portrait.examples == 56 * 32
    assert grew(report)
    assert list(hooks(trainer.model, run.optimizer)) == []
    assert not [name for name in trainer.model.state_dict() if "seed_" in name]


class OrdersOfLightning(Callback):
    """Stands in for a controller."""

    def __init__(self, steering: ForLightning, orders: Script) -> None:
        self.steering, self.orders = steering, orders

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % 2 == 0:
            follow(self.steering.run, trainer.global_step, self.orders)


def test_a_seed_grows_under_lightning() -> None:
    data = digits.Digits.load(torch.device("cpu"))
    steering = lightning_loop.steering(data, settings=SETTINGS)

    module = lightning_loop.train(2, [steering, OrdersOfLightning(steering, script("net.head"))], data)

    run, report = told(steering.run)
    assert (report.steps, report.epochs) == (68, 2)  # 1,077 examples: 34 steps of two micro-batches of 16
    assert run.portrait.examples == 2 * 1_077
    assert grew(report)
    assert list(hooks(module, run.optimizer)) == []
    assert not [name for name in module.state_dict() if "seed_" in name]


def test_a_loop_of_accelerate_attaches_what_it_prepared() -> None:
    accelerator = Accelerator(cpu=True)
    data = digits.Digits.load(torch.device("cpu"))
    host = digits.host()
    model, optimizer = accelerator.prepare(host, torch.optim.SGD(host.parameters(), lr=0.05))
    run = esper.attach(model, optimizer=optimizer, sites=["head"], required=False)

    for inputs, targets in digits.batches(data.train, 0, rank=0, world_size=1):
        with run.step() as step:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step.loss(loss)
        if run.step_number == 3:
            germinate = on_seed(Op.SEED_OP_GERMINATE, site="head", blueprint_id="lora")
            order(run, germinate, on_seed(Op.SEED_OP_START_TRAINING))

    seed = run.executor.seeds["s0"]
    assert seed.meter.fits.total == run.step_number - 3
    run.close()
    assert list(hooks(model, optimizer.optimizer)) == []
