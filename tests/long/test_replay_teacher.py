"""A replay takes each teacher at the decision at which its run took it; what chance did to one is said."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import esper
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime.history.retrace import NotReplayableError
from esper.session import Session
from esper.session.rulings import verdict_key
from esper.tolaria.state.digest import strong_digest
from esper.tolaria.teachers.teachers import WITHOUT, Teachers, TeacherSource
from tests.grove.taught import Awaited, Gate
from tests.log_kit import REPORT, WORKERS, Writer, began, commit, planned
from tests.seed_kit import Host, batch, loss_of, new_host
from tests.session_kit import NO_RUN, order, train
from tests.teacher_kit import Professor, answers, professor, questions, saved

RUN, REGISTERED_AT, TAKEN_AT, LAST_STEP = "taught-0a1b2c3d", 2, 6, 9
BACK_TO, BACK_AT = 4, 6
APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED


def register(digest: str) -> pb.OptimizerCommand:
    kind = pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER
    return pb.OptimizerCommand(
        version=1, command_id="t0", command_type=kind, optimizer_id="host", teacher_digest=digest
    )


def taught(*, rounds_again: tuple[int, ...] = (), resumed_at: int = 0) -> Writer:
    """A log: registered before step 10, taken before step 17 at a decision that says nothing else, one more at 25.

    `resumed_at`: another process goes on from a checkpoint of that step.
    """
    writer = Writer()
    for rank in range(len(WORKERS)):
        writer.record(rank, began=began(rounds_again=rounds_again, resumed=False))
    entry = writer.say("optimizer", Role.OPTIMIZER, "controller", register("a" * 64))
    for number, step in enumerate((10, 17, 25), 1):
        proposal = pb.BarrierProposal(version=1, round=number, roster_generation=1, roster=WORKERS)
        decision = commit(number, entry, "t0", step)
        if number > 1:
            del decision.commands[:]
            decision.digest = barrier_digest(step, [], [])
        for said in (proposal, decision):
            writer.say("decisions", Role.COORDINATOR, "coordinator", said)
    for rank, worker in enumerate(WORKERS):
        taken = pb.CommandReceipt(version=1, command_id="t0", entry_id=entry.entry_id, status=APPLIED, worker=worker)
        taken.step, taken.round = 17, 1
        writer.say("receipts", Role.WORKER, worker, taken)
        if resumed_at:
            writer.record(rank, 8, began=began(resumed=True, first_step=resumed_at))
        writer.record(rank, 8 if resumed_at else 7, ended=pb.RunEnded(report=REPORT, round_applied=9))
    return writer


def test_the_decision_at_which_a_teacher_was_taken_is_told_though_it_says_nothing_else() -> None:
    made = planned(taught())

    assert [[(each.commit.round, each.commit.effective_step) for each in plan.orders] for plan in made] == [
        [(1, 10), (2, 17)]
    ] * 2


def test_a_teacher_that_was_registered_once_more_behind_a_checkpoint_can_not_be_replayed() -> None:
    with pytest.raises(NotReplayableError, match="carried out again behind a checkpoint"):
        planned(taught(rounds_again=(1,)))


def test_a_teacher_that_was_on_its_way_when_a_process_resumed_can_not_be_replayed() -> None:
    with pytest.raises(NotReplayableError, match="while a teacher was on its way"):
        planned(taught(resumed_at=12))

    assert len(planned(taught(resumed_at=17))) == 2


def plan(digest: str) -> pb.ReplayPlan:
    ref = pb.CommittedCommand(stream="optimizer", entry_id="1-0", command_id="t0", envelope_digest=b"t" * 32)
    first = pb.BarrierCommit(version=1, round=1, effective_step=REGISTERED_AT, commands=[ref])
    second = pb.BarrierCommit(version=1, round=2, effective_step=TAKEN_AT)
    taken = pb.CommandReceipt(version=1, command_id="t0", entry_id="1-0", step=TAKEN_AT, status=APPLIED)
    return pb.ReplayPlan(
        run_id=RUN,
        worker="worker-0",
        world_size=1,
        num_threads=1,
        last_step=LAST_STEP,
        orders=[
            pb.CommitOrder(commit=first, commands=[pb.OpenedCommand(ref=ref, optimizer=register(digest))]),
            pb.CommitOrder(commit=second),
        ],
        verdicts={"optimizer/1-0": taken},
    )


def attached(host: Host, source: TeacherSource, **options: Any) -> Session:
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    return esper.attach(host, optimizer=optimizer, sites=["body"], required=False, teachers=source, **options)


def distil(run: Session, host: Host, num_steps: int) -> None:
    assert run.teachers is not None
    for _ in range(num_steps):
        with run.step():
            inputs, targets = batch(run.step_number)
            outputs = host(inputs)
            torch.autograd.backward(loss_of(outputs, targets).mean() + run.teachers.distil(outputs, inputs))
            run.optimizer.step()
            run.optimizer.zero_grad()


def replayed(
    host: Host, told: pb.ReplayPlan, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Session, pb.ReplayReport]:
    (folder / "plan-0.bin").write_bytes(told.SerializeToString())
    MasterKeyring.new(time.time_ns()).derive(RUN, [Role.WORKER]).save(folder / "keyring.json")
    monkeypatch.setenv("ESPER_REPLAY", str(folder))
    run = attached(host, TeacherSource(folder, Professor, sample=questions(4)), **options)
    with pytest.raises(SystemExit):
        distil(run, host, 10_000)
    return run, pb.ReplayReport.FromString((folder / "report-0.bin").read_bytes())


def test_a_teacher_whose_file_is_gone_is_told_of_as_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, report = replayed(new_host(), plan("f" * 64), tmp_path, monkeypatch)

    [difference] = report.differences
    assert difference.startswith(f"round 1, step {TAKEN_AT}, t0: applied at step {TAKEN_AT} in the run, failed (")


def test_it_is_taken_before_the_same_step_however_long_its_file_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, digest = saved(professor(), tmp_path)
    host, alone = new_host(), new_host()
    run, report = replayed(host, plan(digest), tmp_path, monkeypatch)

    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for number in range(1, LAST_STEP + 1):
        inputs, targets = batch(number)
        outputs = alone(inputs)
        loss = loss_of(outputs, targets).mean()
        if number >= TAKEN_AT and run.teachers is not None:
            loss = loss + run.teachers.source.loss(outputs, answers(professor(), inputs))
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert report.report.parameter_digest == strong_digest(alone.named_parameters())
    assert not report.differences


class Listening:
    """The trainer's end of a link that keeps why a run says that it can't be replayed."""

    alive, num_starts, decided, doorbell = True, 1, "", b"\1"

    def __init__(self) -> None:
        self.why: list[str] = []
        self.heard: list[pb.ToTrainer] = []

    def start(self) -> None:
        """Nothing is there to be started."""

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        return self.heard if not self.why else [*self.heard, pb.ToTrainer(report_stored=pb.ReportStored())]

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        if message.record.HasField("ended"):
            self.why.append(message.record.ended.not_replayable)

    def rows_lane_free(self) -> bool:
        return True

    def send_rows(self, message: pb.ToRuntime) -> None:
        last = message.rows.first_sequence + len(message.rows.timestamp_ns) - 1
        self.heard.append(pb.ToTrainer(rows_stored=pb.RowsStored(through_sequence=last)))

    def close(self, timeout_s: float = 5.0) -> None:
        self.alive = False


@pytest.mark.parametrize(("question", "why"), [(0.5, ""), (math.nan, "its teacher failed")])
def test_a_run_says_whether_chance_had_a_part_in_what_its_teacher_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: float, why: str
) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    (_, digest), host, link = saved(professor(), tmp_path), new_host(), Listening()
    run = attached(host, TeacherSource(tmp_path, Professor, sample=questions(4)))
    assert run.teachers is not None
    order(run, register(digest))
    [_] = run.batches(lambda epoch: [epoch])
    train(run, host, 1)
    run.teachers.wait()
    order(run)
    train(run, host, 1)
    logits = run.teachers.predict(torch.full((2, 8), question))
    assert logits is not None
    order(run)
    train(run, host, 1)

    run.exchange.link = link
    run.close()

    assert [said.startswith(why) for said in link.why] == [True] and bool(link.why[0]) == bool(why)


def back_to(step: int, entry_id: str) -> pb.OpenedCommand:
    ref = pb.CommittedCommand(stream="commands", entry_id=entry_id, command_id="back", snapshot_step=step)
    ref.envelope_digest = b"b" * 32
    back = pb.RollbackCommand(target_step=step, reason="test")
    return pb.OpenedCommand(ref=ref, adaptation=pb.AdaptationCommand(command_id="back", rollback_command=back))


def gone_back(digest: str) -> pb.ReplayPlan:
    """Registered, gone back to a checkpoint from which it was on its way, taken two steps later."""
    made, back = plan(digest), pb.BarrierCommit(version=1, round=2, effective_step=BACK_AT)
    made.orders[1].commit.round, made.orders[1].commit.effective_step = 3, BACK_AT + 2
    made.orders.insert(1, pb.CommitOrder(commit=back, commands=[back_to(BACK_TO, "2-0")]))
    made.verdicts.clear()
    return made


def lived(run: Session, host: Host, gate: Gate, made: pb.ReplayPlan) -> list[bool]:
    """Train by these orders; in which steps there is a teacher. What became of each is added to the plan."""
    assert run.teachers is not None
    boundary, found = run.exchange.boundary, []
    for each in made.orders:
        boundary.on_commit(each)
    for _ in run.batches(lambda epoch: range(LAST_STEP)):
        if run.step_number == BACK_AT + 2:
            gate.open()
            run.teachers.wait()
        distil(run, host, 1)
        found.append(run.teachers.current is not None)
    for each in made.orders:
        answer = boundary.on_commit(each)  # once more
        for command, receipt in zip(each.commands, answer.receipts if answer is not None else (), strict=True):
            made.verdicts[verdict_key(command.ref)].CopyFrom(receipt)
    return found


def test_a_rollback_to_where_a_teacher_was_on_its_way_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, digest = saved(professor(), tmp_path)
    options = {"checkpoints": tmp_path / "checkpoints", "checkpoint_every": 3}
    MasterKeyring.new(time.time_ns()).derive("unsteered", [Role.WORKER]).save(tmp_path / "live.json")
    environment = {**NO_RUN, "ESPER_KEYRING": str(tmp_path / "live.json")}
    source, host, link = Awaited(tmp_path, Professor, sample=questions(4)), new_host(), Listening()
    made, run = gone_back(digest), attached(host, source, **options, environment=environment)

    there = lived(run, host, source.gate, made)
    run.exchange.link = link
    report = run.close()
    _, came = replayed(new_host(), made, tmp_path, monkeypatch, **options)

    assert there == [False] * (BACK_AT - 1) + [True] * (LAST_STEP - BACK_AT + 1)
    receipts = made.verdicts["optimizer/1-0"], made.verdicts["commands/2-0"]
    assert [(each.status, each.step) for each in receipts] == [(APPLIED, BACK_AT + 2), (APPLIED, BACK_AT)]
    assert link.why == [""]
    assert came.report.parameter_digest == report.parameter_digest
    assert not came.differences


def test_one_that_a_checkpoint_had_on_its_way_and_that_is_gone_by_now_is_said_from_then_on(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    source = TeacherSource(tmp_path, Professor)
    before, there, gone, last = (Teachers(source) for _ in range(4))
    before.begin(digest, 1)
    state = before.state_dict()
    before.close()

    there.load_state_dict(state)
    path.unlink()
    gone.load_state_dict(state)
    last.load_state_dict(gone.state_dict())

    assert there.by_chance == ""
    assert gone.by_chance == last.by_chance == WITHOUT
