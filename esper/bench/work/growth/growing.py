"""Growth beside other ways to spend the same steps on the same batches, over several seeds (facts of kernels, C2)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure, Ratio, not_measured
from esper.bench.lazily import missing
from esper.bench.statistics.paired import ratio_of_means
from esper.bench.work.growth.grafted import Grafted
from esper.bench.work.growth.growers import Frozen, Gromo, Grower, final_size, host_only, same_from_start
from esper.bench.work.growth.tasks import BATCH, TASKS, Examples, accuracy

ROW, REFERENCE, OURS, GROMO = "growth", "final size from step 1", "grafted by a run", "gromo, widened"
NUM_SEEDS, NUM_QUICK = 10, 2
NUM_STEPS, STEPS_QUICK = 1_200, 240
LOOK_EVERY = 20  # steps between two looks at the test data
GRAFT_AT = 4  # a quarter of the steps


@dataclass(frozen=True, slots=True)
class Trained:
    """One arm from one seed. `flops` are of the whole training, `seconds` of its steps alone,
    of this thread's processor time, as arms are trained one after the other."""

    curve: list[float]
    final: float
    parameters: int
    flops: float
    seconds: float
    num_steps: int
    is_fossil: bool

    @property
    def area(self) -> float:
        """Mean accuracy over the training."""
        return statistics.fmean(self.curve)

    @property
    def dip(self) -> float:
        """Deepest fall below the best so far, once the change was made."""
        after = range(len(self.curve) // GRAFT_AT, len(self.curve))
        return max((max(self.curve[: at + 1]) - self.curve[at] for at in after), default=0.0)


def measure(effort: Effort) -> Iterator[Figure]:
    """Quick: digits alone, two seeds, a fifth of the steps."""
    names = ["digits"] if effort.is_quick else list(TASKS)
    seeds, num_steps = (NUM_QUICK, STEPS_QUICK) if effort.is_quick else (NUM_SEEDS, NUM_STEPS)
    for name in names:
        data = Examples.of(TASKS[name])
        arms = {
            arm: [trained(grower, data, seed, num_steps) for seed in range(seeds)]
            for arm, grower in growers(num_steps).items()
            if arm != GROMO or not missing("gromo")
        }
        shape = f"{name}, {num_steps} steps of {BATCH}, change at step {num_steps // GRAFT_AT}"
        yield from figures(arms, shape)
        if why := missing("gromo"):
            yield Figure(ROW, GROMO, "accuracy", None, "", 0, not_measured(why), shape)


def growers(num_steps: int) -> Mapping[str, Grower]:
    """The reference first."""
    return {
        REFERENCE: final_size,
        "host only": host_only,
        "same parts from step 1": same_from_start,
        OURS: lambda data, seed, graft_at: Grafted(data, seed, graft_at, num_steps),
        "host frozen, as adapters": Frozen,
        GROMO: Gromo,
    }


def trained(grower: Grower, data: Examples, seed: int, num_steps: int) -> Trained:
    arm, curve, flops, seconds = grower(data, seed, num_steps // GRAFT_AT), list[float](), 0.0, 0.0
    for step in range(1, num_steps + 1):
        batch, begun = data.batch(seed, step), time.thread_time()
        arm.at(step)
        arm.step(*batch)
        seconds += time.thread_time() - begun
        flops += arm.flops * BATCH
        if step % LOOK_EVERY == 0:
            curve.append(accuracy(arm.model, data.test))
    arm.close()
    final = accuracy(arm.model, data.test)
    return Trained(curve, final, arm.num_parameters, flops, seconds, num_steps, getattr(arm, "is_fossil", False))


def figures(arms: Mapping[str, Sequence[Trained]], shape: str) -> Iterator[Figure]:
    """Means over seeds; accuracies as ratios to the reference, in pairs of equal seeds."""
    for arm, every in arms.items():
        num = len(every)
        final, area = [each.final for each in every], [each.area for each in every]
        yield _against(arms, arm, "accuracy", final, shape)
        yield _against(arms, arm, "accuracy over the training", area, shape)
        dips = [100 * each.dip for each in every]
        yield Figure(ROW, arm, "deepest dip", statistics.fmean(dips), "points", num, shape=shape, samples=dips)
        yield Figure(ROW, arm, "parameters", statistics.fmean(each.parameters for each in every), "", num, shape=shape)
        giga = statistics.fmean(each.flops for each in every) / 1e9
        yield Figure(ROW, arm, "training", giga, "GFLOP", num, DERIVED, shape)
        rates = [BATCH * each.num_steps / each.seconds for each in every]
        yield Figure(ROW, arm, "rate", statistics.median(rates), "samples/s CPU", num, shape=shape, higher=True)
        if arm == OURS:
            kept = statistics.fmean(each.is_fossil for each in every)
            yield Figure(ROW, arm, "seeds that stayed", kept, "of all", num, shape=shape, higher=True)


def _against(arms: Mapping[str, Sequence[Trained]], arm: str, stat: str, values: Sequence[float], shape: str) -> Figure:
    vs: Ratio | None = None
    if arm != REFERENCE:
        base = [each.final if stat == "accuracy" else each.area for each in arms[REFERENCE]]
        vs = ratio_of_means(values, base, REFERENCE)
    value = statistics.fmean(values)
    return Figure(ROW, arm, stat, value, "", len(values), shape=shape, vs=vs, higher=True, samples=values)
