"""What a round says of each waiting command, and of each request that voters make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.tamiyo.barrier import Released
from esper.tamiyo.judge import COMMANDS, OPTIMIZER, Judge, Waiting
from esper.tamiyo.outcome import Outcome, refuse


def judged(
    waiting: Iterable[Waiting], judge: Judge, released: Released, name: str, outcome: Outcome
) -> tuple[list[pb.CommittedCommand], bool]:
    """What is accepted, in log order, with every verdict's receipt in the outcome; True: a rollback ends the round.

    What comes after a rollback meets the state that it restores, which only votes will tell.
    """
    commands = []
    for each in waiting:
        outcome.done.append((each.stream, each.entry_id))
        receipt = receipt_of(name, each.entry_id, pb.ReceiptStatus.RECEIPT_ACCEPTED, judge.now_ns)
        receipt.command_id, receipt.round = each.message.command_id, released.round
        outcome.receipts.append(receipt)
        try:
            commands.append(judge.accept(each))
        except RefusedError as error:
            refuse(receipt, error)
            continue
        receipt.step, receipt.world_size = released.effective_step, len(released.votes)
        if each.is_rollback:
            return commands, True
    return commands, False


def taken_over(votes: Iterable[pb.BarrierVote], judge: Judge) -> list[pb.SeedRequest]:
    """What voters ask for, each once, where it is still legal behind the commands of the round."""
    wanted: dict[tuple[str, int], pb.SeedRequest] = {}
    for vote in votes:
        for request in vote.requests:
            wanted.setdefault((request.seed_id, request.operation), request)
    return [request for request in wanted.values() if judge.take_over(request)]


def commit_of(
    released: Released,
    commands: list[pb.CommittedCommand],
    requests: list[pb.SeedRequest],
    positions: Mapping[str, str],
) -> pb.BarrierCommit:
    """What is decided, and how far each log is judged."""
    return pb.BarrierCommit(
        version=1,
        round=released.round,
        roster_generation=released.generation,
        effective_step=released.effective_step,
        commands=commands,
        digest=barrier_digest(released.effective_step, commands, requests),
        commands_position=positions[COMMANDS],
        optimizer_position=positions[OPTIMIZER],
        requests=requests,
        deviating=released.deviating,
        digests_compared=released.digests_compared,
        deviating_gradients=released.deviating_gradients,
        latency_ms=released.latency_ms,
        epoch=released.epoch,
    )


def refusal_of(name: str, waiting: Waiting, error: RefusedError, now_ns: int) -> pb.CommandReceipt:
    """That a command does not take effect, and why."""
    receipt = receipt_of(name, waiting.entry_id, pb.ReceiptStatus.RECEIPT_REJECTED, now_ns)
    receipt.command_id = waiting.message.command_id
    refuse(receipt, error)
    return receipt


def receipt_of(name: str, entry_id: str, status: pb.ReceiptStatus, now_ns: int) -> pb.CommandReceipt:
    """A receipt of the coordinator of this name for an entry of a log."""
    return pb.CommandReceipt(version=1, status=status, worker=name, entry_id=entry_id, time_ns=now_ns)
