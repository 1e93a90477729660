"""Promise 1: what the runtime beside it adds to a training step, while 10,000 sealed messages/s arrive in the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import esper
from esper.bench.work.hosts import LARGE, SMALL, Bare, Size
from esper.errors import RuntimeLostError
from esper.session import Session
from report import Report, quantile
from step_rows.surroundings import REGION, RUN, WORKER, Surroundings, surroundings
from step_rows.turned import in_turns

PER_S = 10_000.0
LARGE_SHARE = 20  # a large step takes as long as so many small ones
ALONE_SHARE = 4


def measure(report: Report, num: int, seed: int) -> None:
    """Both models, each with a run of its own; load, Redis, coordinator and aggregators work on in every arm."""
    for row, size, each in (("attached, 5 M", LARGE, num // LARGE_SHARE), ("attached, 0.07 M", SMALL, num)):
        with surroundings(PER_S) as around, attached(size, around) as (run, step):
            report.add(row, "machine", "load", os.getloadavg()[0], "", 1)
            arms = {"bare": Bare(size).step, "bare again": Bare(size).step, "attached": step}
            samples = in_turns(arms, each, seed, size.num_warm)
            report.add_arms(row, samples.passed, "ms", against="bare")
            report.add_arms(f"{row}, processor", samples.worked, "ms", against="bare")
            _tell_of_surroundings(report, row, run, around)
            _alone(report, row, run, step, each // ALONE_SHARE)
        report.add_target(row, "rate", PER_S, "msg/s")
        report.add_target(row, "p50", 1.01, "x bare")
        report.add_target(row, "p99", 1.05, "x bare")


@contextmanager
def attached(size: Size, around: Surroundings) -> Iterator[tuple[Session, Callable[[], object]]]:
    """The same step, joined to the run, with four slots; steered, measured and telling of itself."""
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


def _tell_of_surroundings(report: Report, row: str, run: Session, around: Surroundings) -> None:
    """What the arms were measured beside. A runtime that died, or a load that didn't come, would make them cheap."""
    if run.exchange.link is None or not run.exchange.link.alive or run.exchange.link.num_starts > 1:
        raise RuntimeLostError("the runtime beside the trainer ended while its cost was measured")
    sent, per_s = around.arrived_per_s()
    report.add(row, "load", "rate", per_s, "msg/s", sent)
    report.add(row, "aggregator behind", "count", around.behind_ms(), "ms", 1)
    steps = run.step_number - 1
    report.add(row, "rounds", "count", run.exchange.boundary.round_applied, "", steps)
    report.add(row, "steps that waited", "count", run.portrait.steps_waited, "", steps)


def _alone(report: Report, row: str, run: Session, step: Callable[[], object], num: int) -> None:
    """No bare step between: decisions have only as long to come as a real loop gives them."""
    waited, taken = run.portrait.steps_waited, []
    for _ in range(num):
        start = time.perf_counter_ns()
        step()
        taken.append((time.perf_counter_ns() - start) / 1e6)
    for stat, level in (("p50", 0.5), ("p99", 0.99)):
        report.add(row, "attached alone", stat, quantile(taken, level), "ms", num)
    report.add(row, "steps alone that waited", "count", run.portrait.steps_waited - waited, "", num)
