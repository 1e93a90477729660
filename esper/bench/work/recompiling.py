"""What a compiled host compiles anew while seeds are grafted, blended and culled in it, by the compiler's counters."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from esper.bench.agreement import DisagreementError, Tolerance, difference
from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.work.sited import SIZES, Forward, Sited
from esper.bench.work.teachers.modes import listed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, SHADOWING

ROW, BACKEND = "compile-stability", "aot_eager"  # needs no compiler of the machine's
EXPECTED, MOST = 3.0, 6.0  # performance validation, 2.1: three recompilations in warm-up, six are excessive
SPREAD = 0.2  # the same: a standard deviation below a fifth of the mean
ROUNDING = Tolerance(absolute=1e-4)  # in units of the root mean square of all values
NUM_QUICK, NUM_STEPS, NUM_WARM = 30, 250, 6
Op = pb.SeedOperation
Change = Callable[[Sited], object]

CHANGES: dict[str, Change] = {
    "host alone": lambda run: None,
    "graft": lambda run: run.do(Op.SEED_OP_GERMINATE, "s0"),
    "train": lambda run: run.do(Op.SEED_OP_START_TRAINING, "s0"),
    "blend, alpha moving": lambda run: run.enter(BLENDING, "s0"),
    "shadow": lambda run: run.enter(SHADOWING, "s0"),
    "cull": lambda run: run.do(Op.SEED_OP_CULL, "s0"),
    "graft at another site": lambda run: run.do(Op.SEED_OP_GERMINATE, "s1", at=1),
    "train there": lambda run: run.do(Op.SEED_OP_START_TRAINING, "s1"),
    "cull there": lambda run: run.do(Op.SEED_OP_CULL, "s1"),
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps after one change: graphs compiled in them, milliseconds of each that a processor worked, and the last
    output."""

    name: str
    graphs: int
    times_ms: list[float]
    output: Tensor

    @property
    def settled(self) -> list[float]:
        """Milliseconds of the steps behind its warm-up."""
        return self.times_ms[NUM_WARM:]


def measure(effort: Effort) -> Iterator[Figure]:
    """Raises DisagreementError where the compiled run comes to something else than the same run in eager mode."""
    num = NUM_QUICK if effort.is_quick else NUM_STEPS
    torch._dynamo.reset()
    counters.clear()
    eager = stretches(Sited(lambda host: host, "", num), num)
    found = stretches(Sited(compiled, BACKEND, num), num)
    for one, other in zip(eager, found, strict=True):
        if words := difference(listed(one.output), listed(other.output), ROUNDING, one.name):
            raise DisagreementError(ROW, "eager", "compiled", words)
    yield from figures(found, f"{num} steps each, batches of {', '.join(map(str, SIZES))}, {BACKEND}")
    torch._dynamo.reset()


def compiled(host: nn.Module) -> Forward:
    forward: Forward = torch.compile(host, backend=BACKEND, dynamic=True)
    return forward


def stretches(run: Sited, num: int) -> list[Stretch]:
    return [_stretch(name, change, run, num) for name, change in CHANGES.items()]


def _stretch(name: str, change: Change, run: Sited, num: int) -> Stretch:
    before, times = graphs(), list[float]()
    change(run)
    for _ in range(num):
        begun = time.thread_time()
        output = run.step()
        times.append((time.thread_time() - begun) * 1e3)
    return Stretch(name, graphs() - before, times, output)


def graphs() -> int:
    """Distinct graphs that dynamo has handed to a backend in this process."""
    return int(counters["stats"]["unique_graphs"])


def figures(found: list[Stretch], shape: str) -> Iterator[Figure]:
    for each in found:
        yield Figure(ROW, each.name, "graphs", float(each.graphs), "graphs", len(each.times_ms), shape=shape)
    later = float(sum(each.graphs for each in found[1:]))
    num = sum(len(each.times_ms) for each in found)
    yield Figure(ROW, "all", "recompiles", later, "graphs", num, DERIVED, shape, target=MOST, aspiration=EXPECTED)
    settled = levelled([each.settled for each in found])
    spread = statistics.stdev(settled) / statistics.fmean(settled)
    yield Figure(
        ROW, "all", "spread of a step", spread, "x", len(settled), DERIVED, shape, target=SPREAD, samples=settled
    )


def levelled(stretches: list[list[float]]) -> list[float]:
    """All times, those of each stretch scaled to the mean of all: a step with a seed in it takes longer than one
    without, and is no less steady for that."""
    whole = statistics.fmean(ms for times in stretches for ms in times)
    return [ms * whole / statistics.fmean(times) for times in stretches for ms in times]
