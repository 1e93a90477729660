"""Makes kernels ready before the germinations that will want them take effect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from esper.kasmina.executor import Executor
from esper.kasmina.germination.prefetch import Prefetched
from esper.leyline import contracts as pb
from esper.session.exchange import Exchange


def prepare_kernels(
    executor: Executor,
    exchange: Exchange,
    step: int,
    busy: Callable[[int], AbstractContextManager[None]],
    told: Callable[[Prefetched], None],
) -> None:
    """Before `step` begins. A compiler takes its time, in which no round is to fail: that is said with `busy`."""
    prefetch, boundary = executor.prefetch, exchange.boundary
    while exchange.foreseen:
        prefetch.foresee(exchange.foreseen.pop(0))
    for order in boundary.foreseen(step):
        for opened in order.commands:
            prefetch.foresee(opened.adaptation.seed_command, order.commit.effective_step)
    compiles = executor.kernels.regions is not None
    for wanted in prefetch.take_due(step):
        with busy(pb.BusyWith.BUSY_COMPILE) if compiles else nullcontext():
            told(prefetch.make(wanted))
