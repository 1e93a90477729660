"""The examples, one for each common way of training: steps are cut right, and seeds grow in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

import esper
from esper.examples import digits, plain_loop
from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import Op
from tests.session_kit import Command, on_seed, order, own_optimizer
from tests.site_kit import OPEN, hooks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
SETTINGS = replace(OPEN, rho=0.3, window=10)
Script = Mapping[int, Sequence[Command]]
# Tests import the libraries themselves: else each worker of a session would, as it collects, for four seconds.


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


def follow(run: Session | None, done: int, orders: Script) -> bool:
    """Hand in what is due before the next step, as a controller would. Nothing ends the training before its time."""
    if run is not None and done in orders:
        order(run, *orders[done])
    return False


def told(run: Session | None) -> tuple[Session, pb.WorkerReport]:
    assert run is not None
    return run, run.close()


def grew(report: pb.WorkerReport) -> bool:
    return [pb.SeedLifecycleStage.Name(seed.stage) for seed in report.seeds] == ["SEED_STAGE_FOSSILIZED"]


def test_a_plain_loop_trains_steered_by_nobody() -> None:
    assert plain_loop.train(3) > 0.3


def test_a_seed_grows_under_the_trainer_of_transformers() -> None:
    from esper.examples import hf_trainer
    from tests.system.frameworks import AfterStepsOfTrainer

    data = digits.Digits.load(torch.device("cpu"))
    steering = hf_trainer.steering(data, settings=SETTINGS)
    orders = AfterStepsOfTrainer(lambda done: follow(steering.run, done, script("classifier")))

    trainer = hf_trainer.train(56, [steering, orders], data)

    run, report = told(steering.run)
    assert (report.steps, trainer.state.global_step) == (56, 56)
    assert report.epochs == 2  # 1,077 examples, 32 a step; the second was cut short
    assert run.status.examples == 56 * 32
    assert grew(report)
    assert list(hooks(trainer.model, run.optimizer)) == []
    assert not [name for name in trainer.model.state_dict() if "seed_" in name]


def test_a_seed_grows_under_lightning() -> None:
    from esper.examples import lightning_loop
    from tests.system.frameworks import AfterStepsOfLightning

    data = digits.Digits.load(torch.device("cpu"))
    steering = lightning_loop.steering(data, settings=SETTINGS)
    orders = AfterStepsOfLightning(lambda done: follow(steering.run, done, script("net.head")))

    module = lightning_loop.train(2, [steering, orders], data)

    run, report = told(steering.run)
    assert (report.steps, report.epochs) == (68, 2)  # 1,077 examples: 34 steps of two micro-batches of 16
    assert run.status.examples == 2 * 1_077
    assert grew(report)
    assert list(hooks(module, run.optimizer)) == []
    assert not [name for name in module.state_dict() if "seed_" in name]


def test_a_loop_of_accelerate_attaches_what_it_prepared() -> None:
    from accelerate import Accelerator

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
