"""What a load makes of the answers of a run: receipts, global aggregates, decisions."""

from __future__ import annotations

from pathlib import Path

import torch

from esper.bench.load.asking import harmless
from esper.bench.load.barrier import Rounds
from esper.bench.load.command import Answered
from esper.bench.load.tally import Tally
from esper.bench.load.telemetry import Folded, name_of, packet
from esper.leyline import contracts as pb
from esper.leyline.validate.messages import validate
from tests.checkpoint_kit import Training

_Status = pb.ReceiptStatus
ACCEPTED, APPLIED = _Status.RECEIPT_ACCEPTED, _Status.RECEIPT_APPLIED


def receipt(status: pb.ReceiptStatus, worker: str = "coordinator", command: str = "c") -> pb.CommandReceipt:
    return pb.CommandReceipt(version=1, command_id=command, status=status, worker=worker, world_size=2)


def test_a_command_is_applied_once_every_rank_has_said_so() -> None:
    answered = Answered(Tally("command"))
    answered.expect("c", due_s=10.0)

    answered.on_receipt(receipt(ACCEPTED), 10.5)
    answered.on_receipt(receipt(APPLIED, "w0"), 11.0)
    answered.on_receipt(receipt(APPLIED, "w0"), 11.5)
    assert answered.num_waiting == 1
    answered.on_receipt(receipt(APPLIED, "w1"), 12.0)

    assert answered.num_waiting == 0
    assert answered.tally.counts == {"accepted": 1, "applied": 1}
    assert answered.tally.latencies["accepted"].highest_ms == 500.0
    assert answered.tally.main.highest_ms == 2_000.0


def test_a_command_that_is_refused_or_fails_is_counted_and_not_timed() -> None:
    answered = Answered(Tally("command"))
    for name, status in (("a", _Status.RECEIPT_REJECTED), ("b", _Status.RECEIPT_FAILED)):
        answered.expect(name, due_s=0.0)
        answered.on_receipt(receipt(status, command=name), 1.0)

    assert answered.tally.counts == {"rejected": 1, "failed": 1}
    assert (answered.num_waiting, answered.tally.latencies) == (0, {})


def test_receipts_of_others_count_for_nothing() -> None:
    answered = Answered(Tally("command"))
    answered.expect("c", due_s=0.0)

    answered.on_receipt(receipt(ACCEPTED, command="somebody else's"), 1.0)

    assert (answered.num_waiting, answered.tally.counts) == (1, {})


def test_packets_are_timed_until_an_aggregate_holds_them_in_their_order() -> None:
    folded = Folded(Tally("telemetry"), "ab12")
    folded.expect([0.0, 1.0, 2.0])

    folded.on_aggregate(aggregate(ours=2), 3.0)
    folded.on_aggregate(aggregate(ours=0), 4.0)

    assert folded.num_waiting == 1
    assert folded.tally.counts["folded"] == 2
    assert (folded.tally.main.lowest_ms, folded.tally.main.highest_ms) == (2_000.0, 3_000.0)


def aggregate(ours: int) -> pb.AggregatedTelemetry:
    metrics = {"loss": pb.MetricStatistics(count=7)}
    if ours:
        metrics[name_of("ab12")] = pb.MetricStatistics(count=ours)
    return pb.AggregatedTelemetry(version=1, metrics=metrics)


def test_a_round_is_timed_from_its_proposal_and_names_the_commands_that_waited() -> None:
    rounds = Rounds(Tally("barrier"))
    rounds.expect("c", due_s=0.5)
    commit = pb.BarrierCommit(version=1, round=4, latency_ms=6.0, commands=[pb.CommittedCommand(command_id="c")])

    rounds.on_proposal(pb.BarrierProposal(version=1, round=4), 1.0)
    rounds.on_commit(commit, 1.5)
    rounds.on_commit(commit, 9.0)

    found = {name: part.highest_ms for name, part in rounds.tally.latencies.items()}
    assert found == {"round": 6.0, "seen": 500.0, "decided": 1_000.0}
    assert (rounds.num_waiting, rounds.tally.counts) == (0, {"committed": 1})


def test_a_round_that_was_aborted_is_counted_apart() -> None:
    rounds = Rounds(Tally("barrier"))

    rounds.on_proposal(pb.BarrierProposal(version=1, round=4), 1.0)
    rounds.on_abort(pb.BarrierAbort(version=1, round=4))
    rounds.on_abort(pb.BarrierAbort(version=1, round=9))

    assert (rounds.tally.counts, rounds.tally.latencies) == ({"aborted": 1}, {})


def test_the_commands_of_a_load_change_nothing_of_a_training(tmp_path: Path) -> None:
    loaded, left_alone = (Training(tmp_path / name) for name in ("loaded", "left alone"))
    statuses = set()

    for training in (loaded, left_alone):
        torch.manual_seed(1)
        training.train(1)
        training.germinate()
        for _ in range(4):
            training.train(2)
            if training is loaded:
                command = harmless()
                validate(command)
                statuses |= {each.status for each in training.order(command)}

    mine, theirs = loaded.everything(), left_alone.everything()
    assert statuses == {APPLIED}
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_packets_of_a_load_are_sound_and_go_by_names_of_their_own() -> None:
    made = packet("ab12", sequence=9, at_ns=1_000)

    validate(made)

    assert sorted(made.values) == ["~load.1", "~load.2", "~load.3", "~load.4", "~load.ab12"]
    assert (made.level, made.global_step, made.sequence) == (pb.TelemetryLevel.TELEMETRY_DEBUG, 0, 9)
