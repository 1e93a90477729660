"""What each rank of a replay is told follows from the log alone, through deaths and resumes; or it says why not."""

from __future__ import annotations

import struct
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner

from esper.cli.main import app
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.kinds import Role
from esper.runtime.history.logbook import opened
from esper.runtime.history.retrace import NotReplayableError, plans
from tests.log_kit import ADOPT, REPORT, Writer, began, planned, toy
from tests.rounds import seed_command

PAUSE = pb.AdaptationCommand(
    version=1, command_id="pause", command_type=pb.CommandType.COMMAND_PAUSE, pause_command=pb.PauseCommand()
)


def rounds(plan: pb.ReplayPlan) -> list[tuple[int, int]]:
    return [(order.commit.round, order.commit.effective_step) for order in plan.orders]


def ended(**fields: object) -> pb.RunEnded:
    return pb.RunEnded(**{"report": REPORT, "round_applied": 9, **fields})  # type: ignore[arg-type]


def both(writer: Writer, incarnation: int, **said: Message) -> None:
    for rank in range(2):
        writer.record(rank, incarnation, **said)


def decide(writer: Writer, number: int, step: int, command: pb.AdaptationCommand | None = None) -> None:
    """A command that changes something, unless another one is given."""
    told = command or seed_command(pb.SeedOperation.SEED_OP_CULL, f"s{number}")
    writer.decide(number, writer.say("commands", Role.CONTROLLER, "controller", told), told.command_id, step)


def newest_decision(writer: Writer) -> str:
    return writer.book.streams["decisions"][-1].entry_id


def test_every_rank_is_told_its_orders_and_what_it_answered_then() -> None:
    made = planned(toy())

    assert [(plan.worker, plan.rank, plan.world_size, plan.last_step) for plan in made] == [
        ("worker-0", 0, 2, 40),
        ("worker-1", 1, 2, 40),
    ]
    assert [rounds(plan) for plan in made] == [[(1, 10), (2, 30)]] * 2
    assert [opened.optimizer.command_id for opened in made[1].orders[1].commands] == [ADOPT.command_id]
    assert {receipt.worker for receipt in made[1].verdicts.values()} == {"worker-1"}


def test_what_died_with_a_process_is_left_out_but_for_what_the_next_one_carried_out_again() -> None:
    writer = Writer()
    both(writer, 1, began=began())
    for number, step in enumerate((10, 17, 25, 33), 1):
        decide(writer, number, step)
    resumed = began(first_step=17, resumed=True, rounds_again=[4], decisions_after=newest_decision(writer))
    both(writer, 2, began=resumed)
    decide(writer, 5, 40)
    both(writer, 2, ended=ended())

    assert [rounds(plan) for plan in planned(writer)] == [[(1, 10), (2, 17), (4, 33), (5, 40)]] * 2


def test_a_process_that_began_anew_knows_nothing_of_those_before() -> None:
    writer = Writer()
    both(writer, 1, began=began())
    decide(writer, 1, 10)
    both(writer, 2, began=began(decisions_after=newest_decision(writer)))
    decide(writer, 2, 20)
    both(writer, 2, ended=ended())

    assert [rounds(plan) for plan in planned(writer)] == [[(2, 20)]] * 2


def test_pauses_and_what_no_rank_lived_to_see_are_left_out() -> None:
    writer = Writer()
    both(writer, 1, began=began())
    decide(writer, 1, 10)
    decide(writer, 2, 20, PAUSE)
    decide(writer, 3, 50)
    both(writer, 1, ended=ended(round_applied=2))

    assert [rounds(plan) for plan in planned(writer)] == [[(1, 10)]] * 2


def num_calls(num_commands: int) -> int:
    """Of functions, to plan the replay of so many commands."""
    writer, met = Writer(), list[str]()
    for number in range(1, num_commands + 1):
        decide(writer, number, 10 * number)
    last = pb.WorkerReport()
    last.CopyFrom(REPORT)
    last.steps = 10 * num_commands
    both(writer, 1, began=began())
    both(writer, 1, ended=ended(report=last, round_applied=num_commands))
    reads = opened(writer.book, writer.keyring)
    sys.setprofile(lambda frame, event, _: met.append(event))
    try:
        assert len(plans(writer.book.run_id, reads)[0].orders) == num_commands
    finally:
        sys.setprofile(None)
    return met.count("call")


def test_to_plan_twice_as_many_commands_costs_twice_as_much() -> None:
    assert num_calls(200) < 2.1 * num_calls(100)


def test_a_repeated_beginning_and_end_count_once() -> None:
    writer = Writer()
    both(writer, 1, began=began())
    decide(writer, 1, 10)
    both(writer, 1, began=began())
    both(writer, 1, ended=ended())
    both(writer, 1, ended=ended())

    assert [rounds(plan) for plan in planned(writer)] == [[(1, 10)]] * 2


def digest_of(*commits: pb.BarrierCommit) -> bytes:
    """As runs.proto has it."""
    digest = sha256(b"esper/orders/v1").digest()
    for commit in commits:
        said = struct.pack(">QQ?", commit.round, commit.effective_step, commit.snapshot)
        digest = sha256(b"esper/orders/v1" + digest + said + commit.digest).digest()
    return digest


def of_three(*left_out: int) -> Writer:
    """Its ranks have carried out three orders, and its log has lost some."""
    writer = Writer()
    both(writer, 1, began=began())
    for number in (1, 2, 3):
        decide(writer, number, 10 * number)
    reads = opened(writer.book, writer.keyring)["decisions"]
    commits = [
        each.opened.message for each in reads if each.opened and isinstance(each.opened.message, pb.BarrierCommit)
    ]
    both(writer, 1, ended=ended(num_orders=3, orders_digest=digest_of(*commits)))
    writer.book.streams["decisions"] = [
        each.entry for each in reads if each.opened and getattr(each.opened.message, "round", 0) not in left_out
    ]
    return writer


def test_what_a_rank_says_to_have_carried_out_is_what_it_is_told_again() -> None:
    assert [rounds(plan) for plan in planned(of_three())] == [[(1, 10), (2, 20), (3, 30)]] * 2


@pytest.mark.parametrize("num_done", [1, 2])
def test_what_was_to_be_carried_out_again_behind_the_end_is_left_out_unless_it_was(num_done: int) -> None:
    writer = Writer()
    both(writer, 1, began=began())
    decide(writer, 1, 10)
    decide(writer, 2, REPORT.steps + 1)
    both(writer, 2, began=began(first_step=17, resumed=True, rounds_again=[2], decisions_after=newest_decision(writer)))
    reads = opened(writer.book, writer.keyring)["decisions"]
    commits = [
        each.opened.message for each in reads if each.opened and isinstance(each.opened.message, pb.BarrierCommit)
    ]
    done = digest_of(*commits[:num_done])
    both(writer, 2, ended=ended(round_applied=1, num_orders=num_done, orders_digest=done))

    assert [rounds(plan) for plan in planned(writer)] == [[(1, 10), (2, 41)][:num_done]] * 2


BACK = pb.AdaptationCommand(
    version=1,
    command_id="back",
    command_type=pb.CommandType.COMMAND_ROLLBACK,
    priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
    rollback_command=pb.RollbackCommand(target_step=10, reason="it was better there"),
)


def decide_all(writer: Writer, number: int, step: int, *commands: pb.CommittedCommand, snapshot: bool = False) -> None:
    proposal = pb.BarrierProposal(version=1, round=number, roster_generation=1, roster=["worker-0", "worker-1"])
    decided = pb.BarrierCommit(
        version=1,
        round=number,
        roster_generation=1,
        effective_step=step,
        commands=commands,
        snapshot=snapshot,
        digest=barrier_digest(step, commands, []),
    )
    for message in (proposal, decided):
        writer.say("decisions", Role.COORDINATOR, "coordinator", message)


def go_back(writer: Writer, number: int, step: int) -> None:
    entry = writer.say("commands", Role.CONTROLLER, "controller", BACK)
    digest = sha256(entry.sealed).digest()
    ref = pb.CommittedCommand(
        stream="commands", entry_id=entry.entry_id, command_id="back", envelope_digest=digest, snapshot_step=10
    )
    decide_all(writer, number, step, ref)


def of_two_lives(*goes_back: int) -> Writer:
    """Step 10, of which there is a snapshot, is gone back to at these; the second process resumes from step 20."""
    writer = Writer()
    both(writer, 1, began=began())
    decide_all(writer, 1, 10, snapshot=True)
    for number, step in enumerate(goes_back, 2):
        if step > 20:
            both(writer, 2, began=began(first_step=20, resumed=True, decisions_after=newest_decision(writer)))
        go_back(writer, number, step)
    both(writer, 1 if goes_back[-1] <= 20 else 2, ended=ended())
    return writer


def test_a_snapshot_is_taken_where_its_own_process_goes_back_to_it() -> None:
    [made, _] = planned(of_two_lives(15))

    assert [order.commit.snapshot for order in made.orders] == [True, False]


def test_a_snapshot_is_not_taken_where_its_process_had_died_when_a_checkpoint_of_its_step_was_gone_back_to() -> None:
    assert [rounds(plan) for plan in planned(of_two_lives(25))] == [[(2, 25)]] * 2


def without_beginnings() -> Writer:
    writer = Writer()
    decide(writer, 1, 10)
    return writer


def lost_beginnings() -> Writer:
    writer = Writer()
    both(writer, 1, ended=ended())
    return writer


def of_one_rank() -> Writer:
    writer = Writer()
    writer.record(0, began=began())
    return writer


def resumed_first() -> Writer:
    writer = Writer()
    both(writer, 1, began=began(first_step=9, resumed=True))
    both(writer, 1, ended=ended())
    return writer


def parted() -> Writer:
    writer = toy(ended=False)
    writer.record(0, ended=ended(round_applied=2))
    writer.record(1, ended=ended(round_applied=1))
    return writer


def of_replicas() -> Writer:
    writer = Writer()
    for incarnation, name in enumerate(("north", "south"), 1):
        record = pb.RunRecord(version=1, worker=name, incarnation=incarnation, world_size=1, began=began())
        writer.say("receipts", Role.WORKER, name, record)
    return writer


def of_a_replica_beside_another() -> Writer:
    """Redis has lost that south began, and kept what it carried out."""
    writer = of_replicas()
    [_, south] = writer.book.streams["receipts"]
    writer.book.streams["receipts"].remove(south)
    applied = pb.ReceiptStatus.RECEIPT_APPLIED
    receipt = pb.CommandReceipt(version=1, command_id="c", entry_id="1-0", worker="south", status=applied)
    writer.say("receipts", Role.WORKER, "south", receipt)
    return writer


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        (without_beginnings(), "does not say that a trainer began"),
        (lost_beginnings(), "does not say that a trainer began"),
        (of_one_rank(), "does not say that rank 1 of 2 began"),
        (toy(ended=False), "worker-0 did not end in order"),
        (toy(why="its loader draws"), "its loader draws"),
        (resumed_first(), "older than this log"),
        (parted(), "did not carry out the same"),
        (of_three(2), "worker-0 carried out 3 orders, and its log tells of 2: Redis has lost part"),
        (of_two_lives(15, 25), "a snapshot of step 10 was gone back to, and later a checkpoint of it"),
        (of_replicas(), "north, south were no process group"),
        (of_a_replica_beside_another(), "north, south were no process group"),
    ],
)
def test_a_run_that_can_not_be_replayed_says_why(writer: Writer, why: str) -> None:
    with pytest.raises(NotReplayableError, match=why):
        planned(writer)


def test_a_script_that_looks_for_its_stop_file_never_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPER_STOP_FILE", str(tmp_path))
    path, script = toy().save(tmp_path / "run.jsonl"), tmp_path / "train.py"
    script.write_text("import os, sys; sys.exit(3 + os.path.exists(os.environ['ESPER_STOP_FILE']))")

    result = CliRunner().invoke(app, ["replay", str(path), "--script", str(script), "--timeout", "60"])

    assert result.exit_code == 2
    assert "ended with status 3" in result.output  # whichever rank is seen first
    assert (result.stdout, result.stderr.splitlines()[0]) == ("", "replaying 40 steps on 2 ranks")


def test_the_command_line_says_so_in_one_line_with_status_two(tmp_path: Path) -> None:
    path = toy(why="its loader draws").save(tmp_path / "run.jsonl")
    result = CliRunner().invoke(app, ["replay", str(path)])
    assert (result.exit_code, result.output) == (2, "esper: the run can't be replayed: its loader draws\n")

    path = toy().save(tmp_path / "run.jsonl")
    result = CliRunner().invoke(app, ["replay", str(path), "--dry-run"])
    assert (result.exit_code, result.output.split(":")[1]) == (0, " 2 ranks, 40 steps, 2 rounds\n")
