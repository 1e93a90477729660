"""Steps of a student to a fixed accuracy with a teacher's logits in its loss, beside the same student without."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.statistics.paired import ratio_of_means
from esper.bench.work.students import GOAL, Digits, Learnt, learnt

ROW = "kd-convergence"
NUM_SEEDS, NUM_QUICK = 20, 2
NUM_STEPS = 600  # after which accuracies are compared
OF_STEPS, OF_STEPS_ASPIRED = 0.7, 0.6  # 1.2: 7,000 of 10,000 steps, 6,000 to 8,000 being acceptable
MOST_BELOW, MOST_BELOW_ASPIRED = 0.02, 0.0  # 1.2: below the teacher's accuracy; up to 0.03 is acceptable
SHAPE = f"digits, student 64-16-10, teacher 64-256-10, {GOAL:.0%} of held-out digits"


def measure(effort: Effort) -> Iterator[Figure]:
    """Each seed trains both: the same weights, the same batches."""
    data, num = Digits.load(), NUM_QUICK if effort.is_quick else NUM_SEEDS
    without, taught = (
        [learnt(data, seed, distilled=distilled, num_steps=NUM_STEPS) for seed in range(num)]
        for distilled in (False, True)
    )
    yield from _steps("without KD", without, None)
    yield from _steps("with KD", taught, without)
    for arm, every in (("without KD", without), ("with KD", taught)):
        below = [data.teacher_accuracy - each.accuracy for each in every]
        yield Figure(
            ROW,
            arm,
            f"accuracy below the teacher's at step {NUM_STEPS}",
            statistics.fmean(below),
            "",
            num,
            shape=SHAPE,
            target=MOST_BELOW if every is taught else None,
            aspiration=MOST_BELOW_ASPIRED if every is taught else None,
            samples=below,
        )


def _steps(arm: str, every: Sequence[Learnt], against: Sequence[Learnt] | None) -> Iterator[Figure]:
    steps = [float(each.steps) for each in every]
    yield Figure(ROW, arm, "p50", statistics.median(steps), "steps", len(steps), shape=SHAPE, samples=steps)
    if against is not None:
        vs = ratio_of_means(steps, [float(each.steps) for each in against], "without KD")
        yield Figure(
            ROW,
            arm,
            "ratio",
            vs.ratio,
            "x",
            len(steps),
            shape=SHAPE,
            vs=vs,
            target=OF_STEPS,
            aspiration=OF_STEPS_ASPIRED,
        )
