"""How a rank begins, anew or from a checkpoint: what was decided since is carried out again, each at its step."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence

import structlog

from esper.leyline import contracts as pb
from esper.session.exchange import Exchange
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.common import newest_common
from esper.tolaria.checkpoints.manifest import Place
from esper.tolaria.state.recalled import still_to_do

DECISIONS = "decisions"

log = structlog.get_logger()


def begin(exchange: Exchange, checkpoints: Checkpoints | None, place: Place | None) -> None:
    """Have the runtime read the logs from now on; `place`: of the checkpoint that was put back, on all ranks alike.

    Called once, before the first step. What the checkpoint's own process had met goes to the runtime, for a Redis that
    has lost it; from now on checkpoints hold what this one meets.
    """
    if checkpoints is not None:
        checkpoints.windows, checkpoints.holds_back = exchange.windows, lambda: exchange.boundary.recalling
        checkpoints.on_kept = lambda positions: exchange.say(pb.ToRuntime(kept=pb.Kept(positions=positions)))
        if place is None:
            checkpoints.decided = exchange.decided
        else:
            exchange.windows.update({name: b64decode(text) for name, text in checkpoints.resumed.windows.items()})
            _recall(exchange, checkpoints, place)
    exchange.begin()
    if checkpoints is not None:
        checkpoints.tell_kept()


def _recall(exchange: Exchange, checkpoints: Checkpoints, place: Place) -> None:
    after = checkpoints.resumed.positions.get(DECISIONS)
    asked = None if after is None else pb.Recall(after=after, roster_generation=place.roster_generation)
    found = [] if asked is None else exchange.recall(asked)
    agreed = common_start(found, checkpoints.mean)
    if len(agreed) < len(found):
        log.error("decisions.not_recalled", num=len(found) - len(agreed), why="another rank has not read them")

    again = still_to_do(agreed, place.step, None if exchange.boundary.is_in_group else checkpoints.resumed.beyond)
    if again:
        log.info("decisions.recalled", num=len(again), through_step=again[-1].commit.effective_step)
    exchange.boundary.recall(again)


def common_start(orders: Sequence[pb.CommitOrder], mean: Callable[[float], float]) -> list[pb.CommitOrder]:
    """Up to the newest round that every rank has: all read one log, and some may have read further than others."""
    rounds = [order.commit.round for order in reversed(orders)]
    newest = newest_common(rounds, lambda _: True, mean) or 0
    return [order for order in orders if order.commit.round <= newest]
