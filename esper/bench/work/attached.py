"""Promise 1: what a run adds to a training step of its trainer, while 10,000 sealed messages/s arrive in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import esper
from esper.bench.beside.surroundings import REGION, RUN, WORKER, Surroundings, surroundings
from esper.bench.device import around as placed, device
from esper.bench.effort import Effort, Mode
from esper.bench.figures import MEASURED, Figure
from esper.bench.row import Comparison, Goal
from esper.bench.statistics.samples import NEEDED, percentile
from esper.bench.statistics.summary import AGAIN, figures_of, too_few
from esper.bench.timing.clock import Clock, CpuClock, clock_on
from esper.bench.timing.collector import settled_collector
from esper.bench.timing.comparing import paired
from esper.bench.work.hosts import LARGE, SMALL, Bare, Size
from esper.errors import RuntimeLostError
from esper.session import Session
from esper.tamiyo.coordinator import ROUNDS_UNSEEN

PER_S = 10_000.0
STEPS: Mapping[Mode, int] = {"quick": 2_500, "gate": 5_000, "full": 20_000}
"""Of each arm with the small model, at most."""
LONGER = 5
"""Than other rows: a tail, and barriers every hundred steps, take as many."""
LARGE_SHARE = 20  # a large step takes as long as so many small ones
ALONE_SHARE = 4
BARE, ATTACHED = "bare", "attached"
MEDIAN, TAIL = 1.01, 1.05  # promise 1: of the bare step


@dataclass(slots=True)
class Timer:
    """One arm by two clocks: seconds as they pass, and as this thread has a processor for.

    The second says what a step costs where other work keeps the processors busy, and nothing of what it waited for.
    """

    step: Callable[[], object]
    worked: list[float] = field(default_factory=list)
    clock: Clock = field(default_factory=CpuClock)

    def __call__(self) -> float:
        worked = time.thread_time_ns()
        passed = self.clock.time(self.step)
        self.worked.append(max(time.thread_time_ns() - worked, 1) * 1e-9)
        return passed


def small(effort: Effort) -> Iterator[Figure]:
    return measure(row_of("attached", SMALL), SMALL, STEPS[effort.mode], effort)


def large(effort: Effort) -> Iterator[Figure]:
    return measure(row_of("attached-large", LARGE), LARGE, STEPS[effort.mode] // LARGE_SHARE, effort)


def row_of(name: str, size: Size) -> Comparison:
    """Whose arms are set up beside one another in `measure`, as one of them is a run of several processes."""
    shape = f"whole step, {size.num_parameters:,} parameters, four slots, {PER_S:,.0f} messages/s"
    goals = (Goal(ATTACHED, "ratio", MEDIAN), Goal(ATTACHED, "p99 ratio", TAIL))
    return Comparison(name, "session", (), "ms", shape, goals, threshold=MEDIAN - 1.0, is_placed=True)


def measure(row: Comparison, size: Size, num: int, effort: Effort) -> Iterator[Figure]:
    """Load, Redis, coordinator and aggregators work on in every arm. RuntimeLostError where the runtime ended."""
    with surroundings(PER_S) as around, attached(size, around) as (run, step):
        steps = {BARE: bare_step(size), ATTACHED: step, BARE + AGAIN: bare_step(size)}
        timers = {name: Timer(call, clock=clock_on(device())) for name, call in steps.items()}
        for _ in range(size.num_warm):
            for call in steps.values():
                call()
        least = min(num, NEEDED["p99"])
        longer = replace(effort, min_pairs=least, max_pairs=num, width=0.0, seconds=LONGER * effort.seconds)
        with settled_collector():
            calls = {name: timers[name] for name in (BARE, ATTACHED)}
            passed = paired(row, calls, longer, timers[BARE + AGAIN]).samples
        yield from figures_of(row, passed)
        worked = {name: timers[name].worked[-len(values) :] for name, values in passed.items()}
        yield from figures_of(replace(row, name=f"{row.name}, processor"), worked)
        yield from _of_surroundings(row, run, around)
        yield from _alone(row, run, step, len(passed[BARE]) // ALONE_SHARE)


def bare_step(size: Size) -> Callable[[], object]:
    with placed(is_placed=True):
        return Bare(size).step


@contextmanager
def attached(size: Size, around: Surroundings) -> Iterator[tuple[Session, Callable[[], object]]]:
    """The same step, joined to the run, with four slots; steered, measured and telling of itself."""
    with placed(is_placed=True):
        bare = Bare(size)
    run = esper.attach(
        bare.host,
        optimizer=bare.optimizer,
        sites=size.sites,
        run=RUN,
        name=WORKER,
        region=REGION,
        environment=around.environment,
    )

    def turn() -> None:
        with run.step() as step:
            step.loss(bare.step())

    try:
        yield run, turn
    finally:
        run.close()


def _of_surroundings(row: Comparison, run: Session, around: Surroundings) -> Iterator[Figure]:
    """What the arms were measured beside. A runtime that died, or a load that didn't come, would make them cheap."""
    if run.exchange.link is None or not run.exchange.link.alive or run.exchange.link.num_starts > 1:
        raise RuntimeLostError("the runtime beside the trainer ended while its cost was measured")
    sent, per_s = around.arrived_per_s()
    steps = run.step_number - 1
    yield Figure(row.name, "load", "rate", per_s, "msg/s", sent, shape=row.shape, higher=True)
    yield Figure(row.name, "aggregator behind", "count", around.behind_ms(), "ms", 1, shape=row.shape)
    rounds = max(0, run.exchange.boundary.round_applied - ROUNDS_UNSEEN)
    yield Figure(row.name, "rounds", "count", rounds, "", steps, shape=row.shape)
    yield Figure(row.name, "steps that waited", "count", run.status.steps_waited, "", steps, shape=row.shape)


def _alone(row: Comparison, run: Session, step: Callable[[], object], num: int) -> Iterator[Figure]:
    """No bare step between: decisions have only as long to come as a real loop gives them."""
    waited, timer = run.status.steps_waited, Timer(step, clock=clock_on(device()))
    taken = [timer() * 1e3 for _ in range(num)]
    for stat in ("p50", "p99"):
        value, label = (percentile(taken, stat), MEASURED) if num >= NEEDED[stat] else (None, too_few(num, stat))
        yield Figure(row.name, "attached alone", stat, value, "ms", num, label, row.conditions)
    waited = run.status.steps_waited - waited
    yield Figure(row.name, "steps alone that waited", "count", waited, "", num, shape=row.shape)
