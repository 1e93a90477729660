"""What goes wrong with a teacher feeds its breaker, and all ranks go without it while it is open on any."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from esper.kasmina.breaker import BREAKERS, CLOSED, HALF_OPEN, OPEN, Breaker
from esper.kernels.teacher import int8
from esper.kernels.teacher.settings import TeacherSettings
from esper.tolaria.teachers.teachers import Teachers, TeacherSource
from tests.clocks import Clock
from tests.rank_kit import Ranks
from tests.teacher_kit import Professor, Told, professor, questions, saved


class Moody(Professor):
    """A question that begins with 99 is answered with infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] == 99.0, torch.inf, super().forward(x))


def odd(*positions: int) -> Tensor:
    asked = questions()
    asked[list(positions), 0] = 99.0
    return asked


class Lone:
    """One rank with its teacher, its breaker and its clock."""

    def __init__(self, directory: Path, factory: type[Professor] = Moody, **settings: object) -> None:
        _, digest = saved(professor(), directory)
        self.clock, self.told = Clock(1000.0), Told()
        self.breaker = Breaker(BREAKERS["teacher"], self.clock)
        source = TeacherSource(directory, factory, settings=TeacherSettings(**settings))  # type: ignore[arg-type]
        self.teachers = Teachers(source, tell=self.told, breaker=self.breaker)
        self.teachers.register(digest, 1)


def test_positions_with_logits_that_are_not_finite_count_nothing(tmp_path: Path) -> None:
    of, student = Lone(tmp_path).teachers, torch.randn(12, 3, requires_grad=True)
    kept = torch.arange(12) % 4 > 0
    sound = of.distil(student[kept], questions()[kept])

    loss = of.distil(student, odd(0, 4, 8))
    (gradient,) = torch.autograd.grad(loss, student)

    assert torch.allclose(loss, sound) and not gradient[~kept].any() and gradient[kept].any()


def test_logits_that_are_not_finite_between_two_decisions_and_the_next_two_suspend_it(tmp_path: Path) -> None:
    alone = Lone(tmp_path)
    of = alone.teachers
    states = []
    for step in (10, 20):
        of.predict(odd(3))
        of.predict(odd(3, 5))
        of.settle(step)
        states.append((alone.breaker.state, of.faults.suspended))

    assert states == [(CLOSED, False), (OPEN, True)]
    assert of.predict(questions()) is None and not of.distil(torch.zeros(12, 3), questions()).any()
    assert alone.told.names == ["teacher.registered", *["teacher.non_finite"] * 2, "teacher.suspended"]
    assert alone.told.events[1][2]["positions"] == "3"
    assert alone.told.events[-1][2]["reason"] == "logits of 3 positions were not finite"


def test_after_its_time_it_is_tried_again_and_stays_if_nothing_goes_wrong(tmp_path: Path) -> None:
    alone = Lone(tmp_path)
    of = alone.teachers
    for step in (10, 20):
        of.predict(odd(3))
        of.settle(step)
    news = [of.has_news]
    alone.clock.now_s += 180.0
    news.append(of.has_news)
    of.settle(30)
    tried = alone.breaker.state, of.predict(questions()) is not None
    of.settle(40)

    assert news == [False, True] and tried == (HALF_OPEN, True)
    assert alone.breaker.state == CLOSED and alone.told.names[-1] == "teacher.resumed"


def test_a_fault_while_it_is_tried_again_suspends_it_at_once(tmp_path: Path) -> None:
    alone = Lone(tmp_path)
    of = alone.teachers
    for step in (10, 20):
        of.predict(odd(3))
        of.settle(step)
    alone.clock.now_s += 180.0
    of.settle(30)
    of.predict(odd(1))
    of.settle(40)

    assert alone.breaker.state == OPEN and of.predict(questions()) is None


FALLS = 2 if int8.available() else 1  # from full over int8, where torchao is installed, to offload


class Hungry(Professor):
    """Runs out of memory in every mode but the last."""

    meals = 0

    def forward(self, x: Tensor) -> Tensor:
        self.meals += 1
        return super().forward(x) if self.meals > FALLS else torch.empty(2**60, dtype=torch.uint8)


def test_running_out_of_memory_in_one_forward_is_one_fault_however_often_it_falls_back(tmp_path: Path) -> None:
    alone = Lone(tmp_path, Hungry)

    logits = alone.teachers.predict(questions())

    assert logits is not None and alone.told.names.count("teacher.fell_back") == FALLS
    assert alone.teachers.faults.num_faults == 1 and alone.breaker.state == CLOSED


def test_a_precision_that_diverges_twice_opens_it(tmp_path: Path) -> None:
    alone = Lone(tmp_path, amp_dtype=torch.bfloat16, max_relative_error=1e-6)

    for _ in range(2):
        alone.teachers.check(questions())

    assert alone.breaker.state == OPEN and alone.teachers.has_news
    assert alone.told.names.count("teacher.diverged") == 2


def test_another_teacher_begins_without_a_history(tmp_path: Path) -> None:
    alone = Lone(tmp_path)
    of = alone.teachers
    for step in (10, 20):
        of.predict(odd(3))
        of.settle(step)
    _, digest = saved(professor(1), tmp_path)
    of.begin(digest, 30)
    of.wait()

    of.settle(30)

    assert alone.breaker.state == CLOSED and of.predict(questions()) is not None


def test_both_ranks_suspend_it_before_the_same_step_where_the_breaker_of_one_is_open(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    ranks, told = Ranks(2), [Told(), Told()]
    breakers = [Breaker(BREAKERS["teacher"], Clock(1000.0)) for _ in range(2)]
    held = [
        Teachers(TeacherSource(tmp_path, Moody), tell=told[rank], agree=ranks.agree(rank), breaker=breakers[rank])
        for rank in range(2)
    ]
    for each in held:
        each.register(digest, 1)
    for step in (10, 20):
        held[0].predict(odd(3))
        held[1].predict(questions())
        ranks.all([partial(each.settle, step) for each in held])

    assert [breaker.state for breaker in breakers] == [OPEN, CLOSED]
    assert [each.predict(questions()) for each in held] == [None, None]
    assert [each.events[-1][1] for each in told] == ["teacher.suspended"] * 2
    assert told[1].events[-1][2]["reason"] == "the breaker of another rank is open"
