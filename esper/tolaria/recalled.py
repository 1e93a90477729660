"""Which of the orders decided since a state was kept are to be carried out on it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from esper.leyline import contracts as pb
from esper.tolaria.boundary import pause_change


def still_to_do(
    orders: Iterable[pb.CommitOrder], step: int, took_effect: Callable[[int, int], bool]
) -> list[pb.CommitOrder]:
    """Those that took effect after the boundary of `step`, but for what a rollback undid, and that rollback itself.

    `orders` in the order of their decision; the result in that of their steps: what was decided by a process that
    resumed may have taken effect before what that one had yet to carry out again. `took_effect(to_step, step)` says
    whether the state of `to_step` was put back before `step`; a rollback that did not get so far is carried out, at its
    step. It is asked in the same order on every rank. A snapshot in memory was taken before the commands of its commit,
    a checkpoint after them.
    """
    kept: list[pb.CommitOrder] = []
    for order in orders:
        at = order.commit.effective_step
        if at <= step:
            continue
        target = rollback_of(order)
        if target is not None and took_effect(target, at):
            kept = [each for each in kept if _is_before(each.commit, target)]
        else:
            kept.append(order)
    return sorted(kept, key=lambda each: (each.commit.effective_step, each.commit.round))


def held_before(orders: Iterable[pb.CommitOrder], again: Iterable[pb.CommitOrder]) -> int:
    """The step before which a pause holds the run that is not done again; 0: none does.

    As a rollback has undone it, or as it was carried out late, behind the step of the state. Whether a run is paused is
    no part of what a rollback puts back, and no checkpoint is made meanwhile.
    """
    rounds = {order.commit.round for order in again}
    held = 0
    for order in orders:
        change = pause_change(order)
        if change is not None:
            held = order.commit.effective_step if change and order.commit.round not in rounds else 0
    return held


def rollback_of(order: pb.CommitOrder) -> int | None:
    """The step that the order goes back to, if it does."""
    steps = [opened.ref.snapshot_step for opened in order.commands if opened.adaptation.HasField("rollback_command")]
    return steps[-1] if steps else None


def _is_before(commit: pb.BarrierCommit, target: int) -> bool:
    return commit.effective_step < target or (commit.effective_step == target and not commit.snapshot)
