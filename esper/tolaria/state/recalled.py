"""Which of the orders decided since a state was kept are to be carried out on it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from esper.leyline import contracts as pb


def still_to_do(
    orders: Iterable[pb.CommitOrder], step: int, carried_out: Collection[str] | None = None
) -> list[pb.CommitOrder]:
    """Those that the state before `step` does not hold, in the order of their steps.

    What a rollback undid is among them, as is that rollback: it rewinds no hyperparameter and brings no culled seed
    back, so that what it left standing comes of them. `carried_out` are the entries that the state holds, for a
    replica: it may have heard of an order behind its step. Others have carried out what takes effect up to `step`.
    `orders` in the order of their decision: what was decided by a process that resumed may have taken effect before
    what that one had yet to carry out again.
    """
    if carried_out is None:
        kept = [order for order in orders if order.commit.effective_step > step]
    else:
        kept = [order for order in orders if order.entry_id not in carried_out]
    return sorted(kept, key=lambda each: (each.commit.effective_step, each.commit.round))
