"""One seed, from its plan to its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from esper.leyline.kinds import Role
from tests.simulation.invariants import check, settled
from tests.simulation.plan import Plan, draw
from tests.simulation.producer import Producer
from tests.simulation.rank import Rank
from tests.simulation.record import Record
from tests.simulation.trouble import arrange
from tests.simulation.worker import HandlingWorker, Worker
from tests.simulation.world import World

PATIENCE_S = 120.0  # by then everything is settled, once trouble has ended
AFTERWARDS_S = 8.0  # nothing more may happen


@dataclass(frozen=True, slots=True)
class Cast:
    """The actors' classes: a test puts a faulty one in their place."""

    worker: type[Worker] = Worker
    handling: type[Worker] = HandlingWorker
    rank: type[Rank] = Rank


@dataclass(slots=True)
class Outcome:
    """What came of a seed."""

    plan: Plan
    record: Record
    seconds: float  # virtual
    settled_s: float  # after trouble had ended
    trace: list[str]

    @property
    def replay(self) -> str:
        return f"python bench/simulate.py --seed {self.plan.seed} --trace"

    @property
    def story(self) -> str:
        """What was broken, and the command that shows it again."""
        return "\n".join([*self.record.violations[:5], f"again with: {self.replay}"])


def run(seed: int, cast: Cast | None = None, *, trace: bool = False) -> Outcome:
    """Let the world of a seed run until it is quiet, and judge it."""
    world = World(draw(seed), Record())
    world.trace = [] if trace else None
    with silence():
        populate(world, cast or Cast())
        arrange(world)
        world.run(world.plan.quiet_at_s, lambda: False)
        world.now_s, world.calm = max(world.now_s, world.plan.quiet_at_s), True
        world.run(world.plan.quiet_at_s + PATIENCE_S, lambda: over(world))
        settled_s = world.now_s - world.plan.quiet_at_s
        world.run(world.now_s + AFTERWARDS_S, lambda: False)
        check(world)
    return Outcome(world.plan, world.record, world.now_s, settled_s, world.trace or [])


def populate(world: World, cast: Cast) -> None:
    plan = world.plan
    worker = cast.worker if plan.remembers == "windows" else cast.handling
    for number in range(plan.num_workers):
        world.start(f"worker{number}", worker().live)
    for number in range(plan.num_ranks):
        world.start(f"rank{number}", cast.rank().live)
    for number in range(plan.num_producers):
        role = Role.CONTROLLER if number == 0 else Role.WORKER
        producer = Producer(role, list(range(plan.num_messages)))
        world.producers.append(producer)
        world.start(f"producer{number}", producer.live)


def over(world: World) -> bool:
    return all(producer.done for producer in world.producers) and settled(world)


@contextmanager
def silence() -> Iterator[None]:
    """Worlds say nothing: what they do is in the trace."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(*_: object) -> str:
    raise structlog.DropEvent
