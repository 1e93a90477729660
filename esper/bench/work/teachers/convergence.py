"""Steps of a student to an accuracy with a teacher's logits in its loss, beside the same student without."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.statistics.paired import ratio_of_means
from esper.bench.work.teachers.students import Digits, Learnt, learnt

NUM_SEEDS, NUM_QUICK = 20, 2
NUM_STEPS = 600  # after which accuracies are compared
OF_STEPS, OF_STEPS_ASPIRED = 0.7, 0.6  # 1.2: 7,000 of 10,000 steps, 6,000 to 8,000 being acceptable
MOST_BELOW, MOST_BELOW_ASPIRED = 0.02, 0.0  # 1.2: below the teacher's accuracy; up to 0.03 is acceptable
GOAL = 0.93  # of held-out digits read
FEW = (60, 120)  # digits with labels, of 1,198: 5 and 10 %; the teacher has learnt from all


class Pair(NamedTuple):
    """Two students of the same weights and batches, and the accuracy that both are timed to."""

    without: Learnt
    taught: Learnt
    goal: float


def measure(effort: Effort) -> Iterator[Figure]:
    """Of all digits, to an accuracy that is given: the labels say what the teacher's logits do."""
    data = Digits.load()

    def pair(seed: int) -> Pair:
        without, taught = (
            learnt(data, seed, distilled=distilled, num_steps=NUM_STEPS, goal=GOAL) for distilled in (False, True)
        )
        return Pair(without, taught, GOAL)

    shape = f"digits, student 64-16-10, teacher 64-256-10, {GOAL:.0%} of held-out digits"
    yield from _figures("kd-convergence", shape, data, _pairs(pair, effort), is_bound=True)


def measure_few(effort: Effort) -> Iterator[Figure]:
    """Of few digits, to what the student without a teacher comes to: its logits say what the labels don't."""
    data = Digits.load()
    for num_few in FEW:
        teacher = f"teacher 64-256-10 of 1,198, what is read without at {NUM_STEPS}"
        shape = f"{num_few} digits, student 64-16-10, {teacher}"
        pairs = _pairs(partial(_few, data, num_few), effort)
        yield from _figures("kd-convergence-few", shape, data, pairs, is_bound=False)


def _few(data: Digits, num_few: int, seed: int) -> Pair:
    without = learnt(data, seed, distilled=False, num_steps=NUM_STEPS, num_labelled=num_few)
    goal = without.after(NUM_STEPS)
    return Pair(without, learnt(data, seed, distilled=True, num_steps=NUM_STEPS, goal=goal, num_labelled=num_few), goal)


def _pairs(pair: Callable[[int], Pair], effort: Effort) -> Sequence[Pair]:
    return [pair(seed) for seed in range(NUM_QUICK if effort.is_quick else NUM_SEEDS)]


def _figures(row: str, shape: str, data: Digits, pairs: Sequence[Pair], *, is_bound: bool) -> Iterator[Figure]:
    """`is_bound`: to the documents' accuracy below the teacher's, which is of students that learn what it learnt."""
    without = [float(each.without.steps_to(each.goal)) for each in pairs]
    taught = [float(each.taught.steps_to(each.goal)) for each in pairs]
    num = len(pairs)
    yield Figure(row, "without KD", "p50", statistics.median(without), "steps", num, shape=shape, samples=without)
    yield Figure(row, "with KD", "p50", statistics.median(taught), "steps", num, shape=shape, samples=taught)
    vs = ratio_of_means(taught, without, "without KD")
    yield Figure(row, "with KD", "ratio", vs.ratio, "x", num, shape=shape, vs=vs).aimed(OF_STEPS, OF_STEPS_ASPIRED)
    for arm in ("without KD", "with KD"):
        of_arm = [each.taught if arm == "with KD" else each.without for each in pairs]
        below = [data.teacher_accuracy - each.after(NUM_STEPS) for each in of_arm]
        stat = f"accuracy below the teacher's at step {NUM_STEPS}"
        figure = Figure(row, arm, stat, statistics.fmean(below), "", num, shape=shape, samples=below)
        yield figure.aimed(MOST_BELOW, MOST_BELOW_ASPIRED) if is_bound and arm == "with KD" else figure
