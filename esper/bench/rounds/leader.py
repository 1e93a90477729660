"""The real coordinator, whose rule proposes a round after the other for as long as it is told to."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import structlog

from esper.bench.rounds.lines import given, run, say, told
from esper.bus.connect import reader, writer
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Outcome
from esper.workers.coordinator import CoordinatorSettings, coordinator_loop


class Incessant(Coordinator):
    """Proposes the next round with the decision on the one before, so many times; notes when."""

    left = 0
    proposed_ns: dict[int, int]

    def tick(self, now_ns: int) -> Outcome:
        self._due_step = self._effective_step + 1 if self.left else None
        outcome = super().tick(now_ns)
        for decision in outcome.decisions:
            if isinstance(decision, pb.BarrierProposal):
                self.left -= 1
                self.proposed_ns[decision.round] = time.monotonic_ns()
        return outcome


async def main(url: str, keyring: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    async with reader(url) as redis_reader, writer(url) as redis_writer:
        coordinating = coordinator_loop(
            RoleKeyring.load(Path(keyring)), CoordinatorSettings(), redis_reader, redis_writer
        )
        rule = coordinating.rule = Incessant("coordinator")
        rule.proposed_ns = {}
        serving = asyncio.create_task(coordinating.serve(asyncio.Event()))
        say("ready")
        async for line in told():
            rule.proposed_ns.clear()
            rule.left, begun = line["rounds"], time.monotonic()
            while rule.left or (rule.barrier is not None and rule.barrier.is_open):
                if serving.done():
                    serving.result()
                await asyncio.sleep(0.01)
            say({"proposed_ns": list(rule.proposed_ns.items()), "seconds": time.monotonic() - begun})


if __name__ == "__main__":
    arguments = given()
    del arguments["name"]
    run(main(**arguments))
