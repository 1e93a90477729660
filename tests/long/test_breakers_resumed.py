"""What a breaker has met outlives the process that met it, and no rollback forgives it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.kasmina.breaker import BREAKERS, CLOSED, OPEN
from esper.kasmina.config import KasminaConfig
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from esper.tolaria.checkpoints.tree import pack, unpack
from esper.tolaria.teachers.teachers import TeacherSource
from tests.checkpoint_kit import Training
from tests.pruning_kit import mask, response
from tests.seed_kit import Host, Op, Reason, new_host, optimizer_of
from tests.session_kit import on_seed, order, train
from tests.teacher_kit import Professor, professor, questions, saved as saved_teacher

SITES = {"s0": "body", "s1": "head"}


def attached(folder: Path, *, resume: bool = False, **options: Any) -> tuple[Host, Session]:
    """In a run whose checkpoints lie below this folder, under one key."""
    keyring, host = folder / "worker.json", new_host()
    if not keyring.exists():
        MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(keyring)
    run = esper.attach(
        host,
        optimizer=optimizer_of("sgd", list(host.parameters())),
        sites=("body", "head"),
        required=False,
        environment={"ESPER_RUN": "", "ESPER_KEYRING": str(keyring)},
        checkpoints=folder / "kept",
        resume=resume,
        **options,
    )
    return host, run


def strayed(folder: Path, times: int) -> tuple[Host, Session]:
    """A seed at the body wrote to the host in so many steps; then a checkpoint was made, and s1 lives at the head."""
    host, run = attached(folder)
    train(run, host, 1)
    grow = [on_seed(Op.SEED_OP_GERMINATE, name, site=site, blueprint_id="mlp") for name, site in SITES.items()]
    order(run, *grow, *(on_seed(Op.SEED_OP_START_TRAINING, name) for name in SITES))
    train(run, host, 1)
    stray(run, host, times)
    return host, run


def stray(run: Session, host: Host, times: int) -> None:
    def write(module: nn.Module, given: tuple[Tensor, ...], delta: Tensor) -> None:
        with torch.no_grad():
            host.body.weight.add_(0.0)

    module = run.executor.seeds["s0"].module
    assert module is not None
    with module.register_forward_hook(write):
        train(run, host, times)


def saved(run: Session) -> None:
    assert run.checkpoints is not None
    run.checkpoints.save(run.step_number)


def culls(run: Session) -> list[tuple[str, int]]:
    return [(each.seed_id, each.reason) for each in run.executor.requests() if each.operation == Op.SEED_OP_CULL]


def test_a_seed_with_two_violations_before_a_resume_is_asked_out_at_its_third(tmp_path: Path) -> None:
    _, before = strayed(tmp_path, 2)
    saved(before)
    host, run = attached(tmp_path, resume=True)

    stray(run, host, 1)
    train(run, host, 1)

    assert culls(run) == [("s0", Reason.REASON_BREAKER_OPEN)]
    assert "3 isolation violations" in run.executor.requests()[0].detail


def test_one_whose_breaker_opened_in_the_last_step_before_the_checkpoint_is_asked_out_as_the_run_resumes(
    tmp_path: Path,
) -> None:
    _, before = strayed(tmp_path, 3)
    unsaid = culls(before)
    saved(before)
    host, run = attached(tmp_path, resume=True)

    train(run, host, 1)

    assert unsaid == [] and culls(run) == [("s0", Reason.REASON_BREAKER_OPEN)]


def test_what_an_open_breaker_of_the_rank_keeps_out_stays_out(tmp_path: Path) -> None:
    host, before = attached(tmp_path)
    train(before, host, 1)
    order(before, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
    train(before, host, 1)
    for _ in range(3):
        before.executor.breakers["optimizer"].fail()
    saved(before)
    host, run = attached(tmp_path, resume=True)

    order(run, on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 1)

    table = run.exchange.rows.table()
    assert table is not None
    failed = [each.attributes["detail"] for each in table.events if each.description == "command.failed"]
    assert failed == ["the optimizer breaker is open after 3 failures, for 30 s"]
    assert {name for name, each in run.executor.breakers.items() if each.state == OPEN} == {"optimizer"}


def test_a_teacher_that_was_suspended_is_not_asked_by_the_process_that_resumes(tmp_path: Path) -> None:
    _, digest = saved_teacher(professor(), tmp_path)
    source = TeacherSource(tmp_path, Professor)
    _, before = attached(tmp_path, teachers=source)
    assert before.teachers is not None
    before.teachers.register(digest, 1)
    for _ in range(2):
        before.executor.breakers["teacher"].fail()
    saved(before)

    _, run = attached(tmp_path, resume=True, teachers=source)

    assert run.teachers is not None and run.teachers.current is not None
    assert run.teachers.predict(questions()) is None
    assert run.teachers.has_news  # so that the other ranks learn of it


def test_a_checkpoint_of_before_this_resumes_with_closed_breakers(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.train(1)
    first.germinate()
    dumped = unpack(*through_json(first.checkpoints.state.dump()))
    del dumped["breakers"], dumped["seeds"]["seeds"]["s0"]["breaker"]

    again = Training(tmp_path / "other")
    again.checkpoints.state.prepare(dumped)(2, True)

    assert again.stages() == {"s0": "TRAINING"}
    assert again.executor.seeds["s0"].breaker.state == CLOSED


def through_json(state: dict[str, Any]) -> tuple[Any, bytes]:
    tree, blob = pack(state)
    return json.loads(json.dumps(tree)), blob


def test_a_rollback_to_disk_forgives_no_violation(tmp_path: Path) -> None:
    first = Training(tmp_path)
    first.train(1)
    first.germinate()
    first.train(1)
    first.checkpoints.save(first.step)
    seed = first.executor.seeds["s0"]
    for seed.violations in (1, 2):
        seed.breaker.fail()

    receipt = first.roll_back(first.step)
    seed.breaker.fail()

    assert receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED
    assert (seed.violations, seed.breaker.state) == (2, OPEN)
    assert BREAKERS["isolation"].threshold == 3


def test_pruning_that_was_disabled_stays_so(tmp_path: Path) -> None:
    host, before = attached(tmp_path)
    disable = pb.StructuralPruningRequest(request_id="p", phase=pb.PruningPhase.PRUNING_PHASE_DISABLED)
    order(before, pb.AdaptationCommand(version=1, structural_pruning=disable))
    train(before, host, 1)
    saved(before)
    _, run = attached(tmp_path, resume=True)

    outcome = run.pruning.apply(response(mask("body.weight", [0], 6)), run.step_number)

    assert outcome.reason == Reason.REASON_BREAKER_OPEN


@pytest.mark.parametrize("enabled", [True, False])
def test_pruning_that_the_script_enables_or_disables_by_now_is_so_in_a_process_that_resumes(
    enabled: bool, tmp_path: Path
) -> None:
    host, before = attached(tmp_path, settings=KasminaConfig(checkpoint_pruning_enabled=not enabled))
    train(before, host, 1)
    saved(before)
    _, run = attached(tmp_path, resume=True, settings=KasminaConfig(checkpoint_pruning_enabled=enabled))

    outcome = run.pruning.apply(response(mask("body.weight", [0], 6)), run.step_number)

    assert (outcome.status == pb.ReceiptStatus.RECEIPT_APPLIED) == enabled
