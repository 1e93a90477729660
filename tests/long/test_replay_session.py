"""A replay's session takes orders and verdicts from its plan, and says what it came to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import esper
from esper.errors import SettingError
from esper.kasmina.executor import Executor
from esper.kasmina.moves import Outcome
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session.replay_link import ReplayLink
from esper.session.rulings import RecordedRulings, steering_of
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.state.digest import parameter_digest, strong_digest
from esper.version import running
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Host, Op, new_host, optimizer_of
from tests.session_kit import Command, on_seed, train, train_bare

RUN, LAST_STEP = "replayed-0a1b2c3d", 9
Gate, Reason, Stage = pb.SeedLifecycleGate, pb.ReasonCode, pb.SeedLifecycleStage


def ordered(number: int, step: int, command: Command) -> pb.CommitOrder:
    ref = pb.CommittedCommand(stream="commands", entry_id=f"{number}-0", command_id=command.command_id)
    ref.envelope_digest = bytes([number]) * 32
    commit = pb.BarrierCommit(version=1, round=number, effective_step=step, commands=[ref])
    return pb.CommitOrder(commit=commit, commands=[pb.OpenedCommand(ref=ref, adaptation=command)])  # type: ignore[arg-type]


def plan(*verdicts: pb.CommandReceipt, world_size: int = 1) -> pb.ReplayPlan:
    """A seed that germinates, trains, and is to be grafted long before its gate has seen enough."""
    commands = [
        on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"),
        on_seed(Op.SEED_OP_START_TRAINING),
        on_seed(Op.SEED_OP_START_GRAFTING),
    ]
    orders = [ordered(number, 2 * number, command) for number, command in enumerate(commands, 1)]
    return pb.ReplayPlan(
        run_id=RUN,
        worker="worker-0",
        world_size=world_size,
        num_threads=1,
        last_step=LAST_STEP,
        orders=orders,
        verdicts={f"commands/{receipt.entry_id}": receipt for receipt in verdicts},
    )


def receipt(number: int, status: int, step: int, **fields: object) -> pb.CommandReceipt:
    names = {1: "s0-SEED_OP_GERMINATE", 2: "s0-SEED_OP_START_TRAINING", 3: "s0-SEED_OP_START_GRAFTING"}
    said = pb.CommandReceipt(version=1, command_id=names[number], entry_id=f"{number}-0", step=step, **fields)  # type: ignore[arg-type]
    said.status = status  # type: ignore[assignment]
    return said


def replayed(folder: Path, patch: pytest.MonkeyPatch, told: pb.ReplayPlan) -> tuple[pb.ReplayReport, Host]:
    """What attach() and a loop without an end make of a plan."""
    (folder / "plan-0.bin").write_bytes(told.SerializeToString())
    MasterKeyring.new(time.time_ns()).derive(RUN, [Role.WORKER]).save(folder / "keyring.json")
    patch.setenv("ESPER_REPLAY", str(folder))
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    run = esper.attach(host, optimizer=optimizer, sites=["body"], settings=SETTINGS, run="live-11111111")
    assert run.run_id == RUN
    with pytest.raises(SystemExit) as ended:
        train(run, host, 10_000)
    assert ended.value.code == 0
    return pb.ReplayReport.FromString((folder / "report-0.bin").read_bytes()), host


def stages(report: pb.ReplayReport) -> list[str]:
    return [Stage.Name(record.stage).removeprefix("SEED_STAGE_") for record in report.report.seeds[0].history]


def test_it_ends_after_the_last_step_of_the_run_and_says_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = plan()
    del told.orders[:]
    report, host = replayed(tmp_path, monkeypatch, told)

    alone = new_host()
    optimizer = optimizer_of("sgd", list(alone.parameters()))
    begins = parameter_digest(alone.named_parameters())
    train_bare(alone, optimizer, LAST_STEP)
    assert report.report.steps == LAST_STEP
    assert (report.began.parameter_digest, report.began.esper_version) == (begins, running())
    assert report.report.parameter_digest == strong_digest(alone.named_parameters())
    assert same(host, alone)
    assert int((tmp_path / "step-0").read_text()) in range(LAST_STEP + 1)  # as of its newest heartbeat


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_gate_lets_through_what_it_let_through_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    through = receipt(3, APPLIED, 6, stage=Stage.SEED_STAGE_BLENDING, gate=Gate.SEED_GATE_G1_GRADIENT_HEALTH)
    report, _ = replayed(tmp_path, monkeypatch, plan(receipt(1, APPLIED, 2), receipt(2, APPLIED, 4), through))

    assert stages(report) == ["GERMINATED", "TRAINING", "BLENDING"]
    assert (list(report.differences), report.judged_anew) == ([], 0)


def test_what_was_decided_before_an_earlier_order_is_carried_out_at_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = plan(receipt(1, APPLIED, 2), receipt(2, APPLIED, 4))
    del told.orders[2:]
    told.orders[0].commit.round = 7  # of a process that resumed, and carries out again what was decided as the second

    report, _ = replayed(tmp_path, monkeypatch, told)

    assert stages(report) == ["GERMINATED", "TRAINING"]


def test_what_was_kept_out_then_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = receipt(1, FAILED, 2, reason=Reason.REASON_BREAKER_OPEN, detail="the kernel breaker is open")
    report, _ = replayed(tmp_path, monkeypatch, plan(breaker))

    assert list(report.report.seeds) == []
    assert list(report.differences) == []


def test_without_a_verdict_a_gate_is_judged_anew_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = replayed(tmp_path, monkeypatch, plan())

    assert stages(report) == ["GERMINATED", "TRAINING", "TRAINING"]
    assert report.judged_anew == 2


def rolled_back(*verdicts: pb.CommandReceipt) -> pb.ReplayPlan:
    """To a snapshot, where it went so far then."""
    back = pb.AdaptationCommand(version=1, command_id="back", rollback_command=pb.RollbackCommand())
    told = plan(*verdicts)
    del told.orders[:]
    told.orders.append(pb.CommitOrder(commit=pb.BarrierCommit(version=1, round=1, effective_step=2, snapshot=True)))
    told.orders.append(ordered(2, 5, back))
    told.orders[1].commands[0].ref.snapshot_step = 2
    return told


def test_a_rollback_that_failed_then_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = pb.CommandReceipt(command_id="back", entry_id="2-0", status=FAILED, step=5, reason=Reason.REASON_NO_SNAPSHOT)

    report, host = replayed(tmp_path, monkeypatch, rolled_back(gone))

    alone = new_host()
    train_bare(alone, optimizer_of("sgd", list(alone.parameters())), LAST_STEP)
    assert (list(report.differences), report.judged_anew) == ([], 0)
    assert same(host, alone)


def test_a_rollback_of_which_no_receipt_tells_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = replayed(tmp_path, monkeypatch, rolled_back())

    assert report.judged_anew == 1


def test_what_goes_otherwise_is_told_with_both_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = receipt(2, FAILED, 4, detail="the dog ate it")
    report, _ = replayed(tmp_path, monkeypatch, plan(receipt(1, APPLIED, 2), missed))

    [difference] = report.differences
    assert "round 2, step 4, s0-SEED_OP_START_TRAINING: failed (the dog ate it)" in difference
    assert difference.endswith("applied at step 4 now")


class Noting(Executor):
    """Notes which receipt the last operation was judged by."""

    judged_by: pb.CommandReceipt | None = None

    def apply(self, command: pb.SeedCommand, step: int, epoch: int) -> Outcome:
        rulings = self.rulings
        self.judged_by = rulings.receipt if isinstance(rulings, RecordedRulings) else None
        return super().apply(command, step, epoch)


def test_an_operation_behind_one_that_is_refused_is_judged_by_its_own_receipt(tmp_path: Path) -> None:
    host = new_host()
    executor = Noting(host, ["body"], run_id=RUN, settings=SETTINGS)
    host(torch.zeros(1, 8))
    executor.apply(on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp").seed_command, 1, 0)
    [(_, owned), *_] = executor.seeds["s0"].trainable()
    optimizers = Optimizers(torch.optim.SGD([owned], lr=0.1), reduce=SeedReducer())  # so that it can't begin to train
    first, second = on_seed(Op.SEED_OP_START_TRAINING), on_seed(Op.SEED_OP_CULL)
    order = ordered(1, 2, first)
    order.commands.extend(ordered(2, 2, second).commands)
    then = {f"commands/{number}-0": receipt(number, APPLIED, 2, detail=str(number)) for number in (1, 2)}
    link = ReplayLink(pb.ReplayPlan(verdicts=then), tmp_path / "report")

    steer = steering_of(link, executor)
    unused: Any = None
    steer("worker-0", executor, optimizers, unused, unused, time.time_ns, unused).carry_out(order, 2, 0)

    assert executor.judged_by is not None and executor.judged_by.detail == "2"


def test_another_number_of_ranks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="number of ranks is 1; expected 2"):
        replayed(tmp_path, monkeypatch, plan(world_size=2))


def test_a_folder_without_a_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPER_REPLAY", str(tmp_path / "none"))
    host = new_host()
    with pytest.raises(SettingError, match="a folder that `esper replay` made"):
        esper.attach(host, optimizer=optimizer_of("sgd", list(host.parameters())), sites=["body"])
