"""From a run's log to what each rank is to be told when it is run again, or why it can't be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from esper.bus.group.delivery import Delivery
from esper.errors import EsperError
from esper.leyline import contracts as pb
from esper.leyline.digest import NONE_YET, orders_digest
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from esper.runtime.beside.orders import Decision, Orders
from esper.runtime.history.logbook import Read, messages

CARRIED_OUT = (pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED)
UNSTEERED = ("pause_command", "emergency_command")
"""Commands that hold the whole run, and change no weight of it."""
COMMANDS = ("commands", "optimizer")
EARLY = "a process went on from a checkpoint while a teacher was on its way"


class NotReplayableError(EsperError):
    """Why a run can't be run again."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the run can't be replayed: {why}")


@dataclass
class Life:
    """One trainer process of one rank."""

    record: pb.RunRecord
    began: pb.RunBegan
    ended: pb.RunEnded | None = None


@dataclass
class RunHistory:
    """What the log tells of each rank."""

    run_id: str
    lives: dict[int, list[Life]] = field(default_factory=dict)
    judged: dict[int, pb.RoundJudged] = field(default_factory=dict)
    receipts: dict[str, list[pb.CommandReceipt]] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)  # whose receipts they are

    def note(self, opened: Opened) -> None:
        """Of the receipts stream, in its order."""
        message = opened.message
        if isinstance(message, pb.RunRecord):
            self._note_record(message)
        elif isinstance(message, pb.CommandReceipt) and opened.header.role is Role.WORKER:
            known = message.status in CARRIED_OUT and message.reason != pb.ReasonCode.REASON_ROSTER_CHANGED
            if known:
                self.receipts.setdefault(message.entry_id, []).append(message)
                self.heard.add(message.worker)

    def _note_record(self, record: pb.RunRecord) -> None:
        lives = self.lives.get(record.rank, [])
        known = next((life for life in lives if life.record.incarnation == record.incarnation), None)
        match record.WhichOneof("said"):
            case "began" if known is None:
                self.lives[record.rank] = [*lives, Life(record, record.began)]
            case "ended" if known is not None:
                known.ended = record.ended
            case "judged":
                self.judged.setdefault(record.judged.round, record.judged)


def plans(run_id: str, reads: Mapping[str, Sequence[Read]]) -> list[pb.ReplayPlan]:
    """One for each rank, by rank. Raises NotReplayableError, and TrainingError where a commit can't be believed."""
    history = RunHistory(run_id)
    for opened in messages(reads["receipts"]):
        history.note(opened)
    if not history.lives:
        raise NotReplayableError("its log does not say that a trainer began")
    names = {life.record.worker for life in history.lives.get(0, []) if life.record.world_size == 1}
    if names and len(history.lives) == 1:  # Redis may have lost that another began, and kept what it carried out
        names |= history.heard
    if len(names) > 1:
        raise NotReplayableError(f"{', '.join(sorted(names))} were no process group: each went its own way")
    world_size = max(lives[-1].record.world_size for lives in history.lives.values())
    if missing := [rank for rank in range(world_size) if rank not in history.lives]:
        raise NotReplayableError(f"its log does not say that rank {missing[0]} of {world_size} began")
    made = [_plan(history, rank, reads) for rank in range(world_size)]
    for plan in made[1:]:
        if _orders(plan) != _orders(made[0]) or plan.last_step != made[0].last_step:
            raise NotReplayableError(f"{plan.worker} and {made[0].worker} did not carry out the same, or not as long")
    return made


def lives(reads: Mapping[str, Sequence[Read]]) -> dict[int, list[Life]]:
    """The processes of each rank, one after another, but for those before one of their name that began anew: their
    work is lost. Replicas are rank 0 each."""
    history = RunHistory("")
    for opened in messages(reads["receipts"]):
        history.note(opened)
    return {
        rank: [life for at, life in enumerate(every) if not _begins_anew(life.record.worker, every[at + 1 :])]
        for rank, every in sorted(history.lives.items())
    }


def _begins_anew(worker: str, later: Iterable[Life]) -> bool:
    return any(life.record.worker == worker and not life.began.resumed for life in later)


def _plan(history: RunHistory, rank: int, reads: Mapping[str, Sequence[Read]]) -> pb.ReplayPlan:
    lives = history.lives[rank]
    last, worker = lives[-1], lives[-1].record.worker
    if last.ended is None:
        raise NotReplayableError(f"{worker} did not end in order, so that nobody knows what it came to")
    if last.ended.not_replayable:
        raise NotReplayableError(last.ended.not_replayable)
    if lives[0].began.resumed:
        raise NotReplayableError(f"{worker} went on from a checkpoint that is older than this log")
    timeline = _come_to(last.ended, _timeline(lives, reads))
    _refuse_another(last.ended, timeline, worker)
    verdicts = _verdicts(history, worker, timeline)
    _refuse_taught_again(lives, timeline)
    _refuse_taught_between(lives, timeline, verdicts)
    taught = _taught(timeline, verdicts)
    timeline = _as_held(lives, timeline)
    orders = [kept for order in timeline if (kept := _without_pauses(order, taught)) is not None]
    return pb.ReplayPlan(
        run_id=history.run_id,
        worker=worker,
        rank=rank,
        world_size=last.record.world_size,
        num_threads=last.began.num_threads,
        last_step=last.ended.report.steps,
        orders=orders,
        verdicts=verdicts,
        judged=[judged for _, judged in sorted(history.judged.items())],
    )


def _timeline(lives: Sequence[Life], reads: Mapping[str, Sequence[Read]]) -> list[pb.CommitOrder]:
    """Orders behind the state that the last process ended with.

    What a process did after the checkpoint that the next one went on from died with it, but for what that one says
    that it carries out again; the checkpoint was made behind the orders of its own step. One that began anew knows
    nothing of those before.
    """
    known: dict[int, pb.CommitOrder] = {}
    kept: dict[int, pb.CommitOrder] = {}
    for life in lives:
        began, own = life.began, _carried_out(life, reads)
        kept = {number: order for number, order in kept.items() if began.resumed and _is_behind(order, began)}
        kept |= {number: known[number] for number in began.rounds_again if number in known}
        if life is lives[-1]:
            assert life.ended is not None
            own = [order for order in own if order.commit.round <= life.ended.round_applied]
        for order in own:
            kept.setdefault(order.commit.round, order)
        known |= {order.commit.round: order for order in own}
    return sorted(kept.values(), key=lambda order: (order.commit.effective_step, order.commit.round))


def _come_to(ended: pb.RunEnded, timeline: list[pb.CommitOrder]) -> list[pb.CommitOrder]:
    """Without what was to be carried out again behind the end: a loop may end before a step, or in it."""
    last = ended.report.steps
    orders = [order for order in timeline if order.commit.effective_step <= last + 1]
    while ended.orders_digest and len(orders) > ended.num_orders and orders[-1].commit.effective_step > last:
        orders.pop()
    return orders


def _refuse_another(ended: pb.RunEnded, timeline: Sequence[pb.CommitOrder], worker: str) -> None:
    """Where the log tells of other orders than those that the last process says to have led to its end."""
    digest = NONE_YET
    for order in timeline:
        digest = orders_digest(digest, order.commit)
    if ended.orders_digest and digest != ended.orders_digest:
        told = f"{worker} carried out {ended.num_orders} orders, and its log tells of {len(timeline)}"
        others = " others" if ended.num_orders == len(timeline) else ""
        why = "Redis has lost part of the run's history, or this rank refused some as the clock was set"
        raise NotReplayableError(f"{told}{others}: {why}")


def _as_held(lives: Sequence[Life], timeline: Sequence[pb.CommitOrder]) -> list[pb.CommitOrder]:
    """Without snapshots whose step was gone back to once their process had died: by a checkpoint, then.

    A snapshot is of the state before the orders of its step, a checkpoint of that behind them, and one that is in
    memory goes first.
    """
    targets = {(_holder(lives, order), target) for order in timeline for target in _gone_back_to(order)}
    dropped = set()
    for order in timeline:
        step, holder = order.commit.effective_step, _holder(lives, order)
        if order.commit.snapshot and any(target == step and by != holder for by, target in targets):
            if (holder, step) in targets:
                raise NotReplayableError(f"a snapshot of step {step} was gone back to, and later a checkpoint of it")
            dropped.add(order.commit.round)
    return [_without_snapshot(order) if order.commit.round in dropped else order for order in timeline]


def _holder(lives: Sequence[Life], order: pb.CommitOrder) -> int:
    """Which process carried it out on the way to the end, counted from the first."""
    began = [life.began for life in lives]
    return max(at for at, each in enumerate(began) if not each.resumed or not _is_behind(order, each))


def _gone_back_to(order: pb.CommitOrder) -> list[int]:
    return [each.ref.snapshot_step for each in order.commands if each.adaptation.HasField("rollback_command")]


def _without_snapshot(order: pb.CommitOrder) -> pb.CommitOrder:
    made = pb.CommitOrder()
    made.CopyFrom(order)
    made.commit.snapshot = False
    return made


def _taught(orders: Iterable[pb.CommitOrder], verdicts: Mapping[str, pb.CommandReceipt]) -> set[int]:
    """Steps before which a teacher was taken or refused: at a decision that may say nothing else."""
    teaching = (opened for order in orders for opened in order.commands if _teaches(opened))
    return {verdicts[_key(opened)].step for opened in teaching if _key(opened) in verdicts}


def _refuse_taught_again(lives: Iterable[Life], orders: Iterable[pb.CommitOrder]) -> None:
    """A receipt says when a teacher had come, but not when it came once more."""
    again = {number for life in lives for number in life.began.rounds_again}
    if any(_teaches(opened) for order in orders if order.commit.round in again for opened in order.commands):
        raise NotReplayableError("a teacher was registered in what was carried out again behind a checkpoint")


def _refuse_taught_between(
    lives: Sequence[Life], orders: Iterable[pb.CommitOrder], verdicts: Mapping[str, pb.CommandReceipt]
) -> None:
    """The process after one that died with a teacher on its way had it from its first step on: no receipt says so."""
    for order in orders:
        resumed_at = [life.began.first_step for life in lives[_holder(lives, order) + 1 :]]
        for key in map(_key, filter(_teaches, order.commands)):
            if resumed_at and (key not in verdicts or verdicts[key].step > min(resumed_at)):
                raise NotReplayableError(EARLY)


def _teaches(opened: pb.OpenedCommand) -> bool:
    return opened.optimizer.command_type == pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER


def _is_behind(order: pb.CommitOrder, began: pb.RunBegan) -> bool:
    """Whether the state that a process went on from was made after the order."""
    return order.commit.effective_step <= began.first_step


def _carried_out(life: Life, reads: Mapping[str, Sequence[Read]]) -> list[pb.CommitOrder]:
    """What the runtime beside this trainer told it, by the very rule that it went by.

    Each command is handed over with the commit that names it: each commit looks at all that are held.
    """
    orders, said = Orders(past=entry_order(life.began.decisions_after)), list[pb.ToTrainer]()
    commands = {(name, opened.entry_id): opened for name in COMMANDS for opened in messages(reads[name])}
    for opened in messages(reads["decisions"]):
        for ref in opened.message.commands if isinstance(opened.message, pb.BarrierCommit) else ():
            if (named := commands.get((ref.stream, ref.entry_id))) is not None:
                said += orders.on_command(ref.stream, named, _delivery(ref.stream, named))[0]
        said += _decided(orders, opened)
    return [message.commit for message in said if message.HasField("commit")]


def _decided(orders: Orders, opened: Opened) -> list[pb.ToTrainer]:
    decision, delivery = opened.message, _delivery("decisions", opened)
    if isinstance(decision, pb.LeaderAnnouncement):
        return orders.on_announcement(decision, delivery)[0]
    if not isinstance(decision, Decision) or orders.is_past(decision, delivery):
        return []
    match decision:
        case pb.BarrierProposal():
            return orders.on_proposal(decision, delivery)[0]
        case pb.BarrierCommit():
            return orders.on_commit(decision, delivery)[0]
        case pb.BarrierAbort():
            return orders.on_abort(decision, delivery)[0]


def _delivery(stream: str, opened: Opened) -> Delivery:
    return Delivery(stream, "replay", opened.entry_id, opened.sealed, 1)


def _without_pauses(order: pb.CommitOrder, taught: set[int]) -> pb.CommitOrder | None:
    """None: nothing is left that changes a weight, or could be gone back to, and no teacher was waited for there."""
    commands = [opened for opened in order.commands if not _holds_run(opened)]
    is_taught = order.commit.effective_step in taught
    if not (commands or order.commit.requests or order.commit.snapshot or is_taught):
        return None
    return pb.CommitOrder(commit=order.commit, commands=commands)


def _holds_run(opened: pb.OpenedCommand) -> bool:
    kind = opened.adaptation.WhichOneof("command") if opened.HasField("adaptation") else None
    return kind in UNSTEERED and not opened.adaptation.pause_command.seed_id


def _verdicts(history: RunHistory, worker: str, orders: Iterable[pb.CommitOrder]) -> dict[str, pb.CommandReceipt]:
    """Of this rank, else of any: they judge alike."""
    found = {}
    for order in orders:
        for opened in order.commands:
            said = [each for each in history.receipts.get(opened.ref.entry_id, ()) if _is_of(each, opened.ref)]
            if said:
                own = [each for each in said if each.worker == worker]
                found[_key(opened)] = (own or said)[0]
    return found


def _key(opened: pb.OpenedCommand) -> str:
    return f"{opened.ref.stream}/{opened.ref.entry_id}"


def _is_of(receipt: pb.CommandReceipt, ref: pb.CommittedCommand) -> bool:
    return receipt.command_id == ref.command_id


def _orders(plan: pb.ReplayPlan) -> list[tuple[int, int]]:
    return [(order.commit.round, order.commit.effective_step) for order in plan.orders]
