"""transformers' Trainer, Lightning and a plain loop, each steered by a controller through a live coordinator."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import esper
from esper.client import Controller
from esper.examples import digits, plain_loop
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.plan import plan
from esper.leyline import contracts as pb
from esper.session import Session
from tests.site_kit import OPEN, hooks
from tests.system.processes import Start
from tests.system.steered import WORKER, Answers, Steered, insisted

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
SETTINGS = replace(OPEN, rho=0.3, window=10)
PRUNING = KasminaCheckpointPruningConfig(importance_every=1, safety_margin=0.6)
ENDLESS = 1_000_000
"""Steps: the story ends each training, however long the coordinator takes over it."""


@pytest.fixture
def steered(redis_url: str, run_id: str, tmp_path: Path, born: Start) -> Steered:
    torch.set_num_threads(1)
    return Steered(redis_url, run_id, tmp_path, born)


async def grown(run: Controller, *, site: str, elsewhere: str, pruned: str) -> Answers:
    """One seed from germination to fossil, one that is culled, and a quarter of a layer's channels pruned."""
    told: Answers = {}
    told["germinate"] = await (await run.germinate("s0", site=site, blueprint="lora", rank=4)).applied()
    told["create"] = await (await run.create_seed_optimizer("s0", lr=0.02)).applied()
    told["train"] = await (await run.start_training("s0")).applied()
    told["weed"] = await (await run.germinate("weed", site=elsewhere, blueprint="norm")).applied()
    told["weed trains"] = await (await run.start_training("weed")).applied()
    told["graft"] = await insisted(partial(run.start_grafting, "s0", steps=4))
    told["stabilize"] = await insisted(partial(run.stabilize, "s0"))
    told["evaluate"] = await insisted(partial(run.evaluate, "s0"))
    told["cull"] = await (await run.cull("weed")).applied()
    told["fossilize"] = await insisted(partial(run.fossilize, "s0"))
    masks = plan(await run.importance(), 0.25, only=[pruned])
    told["prune"] = await (await run.prune(masks)).applied()
    told["rate"] = await (await run.adjust_optimizer(lr=0.001)).applied()
    return told


def check(told: Answers, report: pb.WorkerReport) -> None:
    """Every command was carried out once, by the one worker, in order; and what they ask for has come about."""
    receipts = [receipt for answers in told.values() for receipt in answers]
    assert len(receipts) == len(told)
    assert {(each.worker, each.status) for each in receipts} == {(WORKER, pb.ReceiptStatus.RECEIPT_APPLIED)}
    assert [each.step for each in receipts] == sorted(each.step for each in receipts)
    assert report.steps >= receipts[-1].step
    stages = {seed.seed_id: pb.SeedLifecycleStage.Name(seed.stage) for seed in report.seeds}
    assert stages == {"s0": "SEED_STAGE_FOSSILIZED", "weed": "SEED_STAGE_EMBARGOED"}


def check_pruned(weight: torch.Tensor) -> None:
    """A quarter of the rows, rounded down, is zero."""
    rows = weight.detach().flatten(1).abs().sum(1)
    assert int((rows == 0).sum()) == len(rows) // 4


def told_by(run: Session | None) -> tuple[Session, pb.WorkerReport]:
    assert run is not None
    return run, run.close()


def test_a_controller_grows_and_prunes_under_the_trainer_of_transformers(steered: Steered) -> None:
    from esper.examples import hf_trainer
    from tests.system.frameworks import AfterStepsOfTrainer

    data = digits.Digits.load(torch.device("cpu"))
    callback = hf_trainer.steering(data, settings=SETTINGS, pruning=PRUNING, environment=steered.worker)
    pruned = "vit.layers.0.mlp.fc1.weight"
    story = partial(grown, site="classifier", elsewhere="vit.layernorm", pruned=pruned)

    with steered.controlled(story):
        over = AfterStepsOfTrainer(lambda _: steered.is_over)
        trainer = hf_trainer.train(ENDLESS, [callback, over], data)

    run, report = told_by(callback.run)
    check(steered.told, report)
    check_pruned(trainer.model.get_parameter(pruned))
    assert report.steps == trainer.state.global_step
    assert list(hooks(trainer.model, run.optimizer)) == []


def test_a_controller_grows_and_prunes_under_lightning(steered: Steered) -> None:
    from esper.examples import lightning_loop
    from tests.system.frameworks import AfterStepsOfLightning

    data = digits.Digits.load(torch.device("cpu"))
    callback = lightning_loop.steering(data, settings=SETTINGS, pruning=PRUNING, environment=steered.worker)
    story = partial(grown, site="net.head", elsewhere="net.hidden", pruned="net.head.weight")

    with steered.controlled(story):
        over = AfterStepsOfLightning(lambda _: steered.is_over)
        module = lightning_loop.train(ENDLESS, [callback, over], data)

    run, report = told_by(callback.run)
    check(steered.told, report)
    check_pruned(module.get_parameter("net.head.weight"))
    assert list(hooks(module, run.optimizer)) == []


def test_a_controller_grows_and_prunes_in_a_plain_loop(steered: Steered) -> None:
    data, model = digits.Digits.load(torch.device("cpu")), digits.host()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    holdout = ([data.holdout], torch.nn.CrossEntropyLoss(reduction="none"))
    options: dict[str, Any] = {
        "settings": SETTINGS,
        "pruning": PRUNING,
        "environment": steered.worker,
        "holdout": holdout,
    }
    story = partial(grown, site="head", elsewhere="hidden", pruned="head.weight")

    with (
        steered.controlled(story),
        esper.attach(model, optimizer=optimizer, sites=["hidden", "head"], **options) as run,
    ):
        for epoch in range(ENDLESS):
            for inputs, targets in digits.batches(data.train, epoch, rank=0, world_size=1):
                with run.step() as step:
                    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                    torch.autograd.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    step.loss(loss)
            run.epoch_end()
            if steered.is_over:
                break

    check(steered.told, run.close())
    check_pruned(model.get_parameter("head.weight"))
    assert list(hooks(model, optimizer)) == []


async def tried(run: Controller) -> Answers:
    """A seed that is let go again; then somebody presses Ctrl-C where the training runs."""
    try:
        told = {
            "germinate": await (await run.germinate("s0", site="head", blueprint="lora")).applied(),
            "create": await (await run.create_seed_optimizer("s0", lr=0.01)).applied(),
            "train": await (await run.start_training("s0")).applied(),
            "rate": await (await run.adjust_optimizer(lr=0.02)).applied(),
            "cull": await (await run.cull("s0")).applied(),
        }
        await run.reaches("s0", "EMBARGOED")
        return told
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def test_the_plain_loop_of_the_examples_is_steered_and_may_be_interrupted(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in steered.worker.items():
        monkeypatch.setenv(name, value)

    with steered.controlled(tried), pytest.raises(KeyboardInterrupt):
        plain_loop.train(ENDLESS)

    receipts = [receipt for answers in steered.told.values() for receipt in answers]
    assert [(each.worker, each.status) for each in receipts] == [(WORKER, pb.ReceiptStatus.RECEIPT_APPLIED)] * 5
