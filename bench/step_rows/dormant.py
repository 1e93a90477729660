"""What four dormant slots add to a training step, next to the bare model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from esper.bench.work.hosts import SMALL, Bare
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from report import Report
from step_rows.turned import in_turns


def measure(report: Report, num: int, seed: int) -> None:
    arms = {"bare": Bare(SMALL).step, "bare again": Bare(SMALL).step, "four slots": with_slots(Bare(SMALL))}
    samples = in_turns(arms, num, seed, SMALL.num_warm)
    report.add_arms("dormant slots", samples.passed, "ms", against="bare")
    report.add_arms("dormant slots, processor", samples.worked, "ms", against="bare")
    report.add_target("dormant slots", "p50", 1.01, "x bare again")


def with_slots(bare: Bare) -> Callable[[], object]:
    """The same step with four slots in the model and the executor told of each step, no seed in any slot."""
    executor, steps = Executor(bare.host, SMALL.sites, run_id="bench", settings=KasminaConfig()), count()

    def turn() -> None:
        executor.begin_step(next(steps), 0)
        bare.step()

    return turn
