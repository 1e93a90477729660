"""A teacher is loaded while the training goes on, and taken by all ranks before the same step, or by none."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import esper
from esper.kernels.teacher.settings import TeacherSettings
from esper.leyline import contracts as pb
from esper.session.teacher_registration import TeacherRegistrations
from esper.tolaria.optimizers.optimizers import PENDING, OptimizerOutcome
from esper.tolaria.teachers.teachers import Teachers, TeacherSource
from tests.seed_kit import equal, new_host
from tests.session_kit import order, train, train_bare
from tests.teacher_kit import Professor, Slow, Told, answers, professor, questions, register, saved, teachers

APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED


def settled(of: Teachers, step: int) -> OptimizerOutcome:
    of.wait()
    outcome = of.settle(step)
    assert outcome is not None
    return outcome


def test_a_teacher_that_comes_while_the_ranks_compare_notes_is_news_after_it(tmp_path: Path) -> None:
    Slow.may_answer.clear()
    _, digest = saved(professor(), tmp_path)

    def compare(flags: Tensor) -> Tensor:
        Slow.may_answer.set()
        of.wait()
        return flags

    of = Teachers(TeacherSource(tmp_path, Slow, sample=questions(4)), agree=compare)
    of.begin(digest, 1)

    assert of.settle(1) is None and of.has_news
    assert settled(of, 9).status == APPLIED and not of.has_news


def test_training_goes_on_bit_for_bit_while_a_teacher_is_loaded_and_has_it_at_the_next_decision(tmp_path: Path) -> None:
    Slow.may_answer.clear()
    _, digest = saved(professor(), tmp_path)
    host = new_host()
    twin, optimizer = copy.deepcopy(host), torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    source = TeacherSource(tmp_path, Slow, sample=questions(4))
    with esper.attach(host, optimizer=optimizer, sites=["body"], required=False, teachers=source) as run:
        assert run.teachers is not None
        quiet = run.teachers.has_news
        order(run, register(digest))
        train(run, host, 9)
        order(run)
        train(run, host, 1)
        before, counted = run.teachers.current, run.status.steering.num_applied
        Slow.may_answer.set()
        run.teachers.wait()
        news = run.teachers.has_news
        order(run)
        train(run, host, 1)
        logits = run.teachers.predict(questions())

    train_bare(twin, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9), 11)
    assert not quiet and before is None and counted == 0 and news
    assert run.status.steering.num_applied == 1
    assert logits is not None and torch.equal(logits, answers(professor(), questions()))
    assert equal(dict(host.state_dict()), dict(twin.state_dict()))


def test_the_answer_to_a_round_waits_for_its_teachers_and_then_says_what_became_of_each(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of, counted = teachers(tmp_path), list[pb.CommandReceipt]()
    registrations = TeacherRegistrations(of, counted.append)
    other = pb.CommandReceipt(command_id="other", status=APPLIED)
    receipts = [other, *(pb.CommandReceipt(command_id=name, status=PENDING) for name in ("good", "bad"))]
    answer = pb.RoundApplied(round=3, receipts=receipts)
    for each in (digest, "f" * 64):
        of.begin(each, 5)

    first = registrations.after(answer, receipts, 5)
    said = [first]
    while len(counted) < 2:
        of.wait()
        step = 10 * len(said)
        said.append(registrations.after(pb.RoundApplied(round=3 + len(said)), [], step))

    ended = [(each.command_id, each.status) for each in counted]
    assert ended == [("good", APPLIED), ("bad", FAILED)]
    assert not first.answers and first.receipts[0].command_id == "other"
    assert [each.round for each in said[-1].answers].count(3) == 1
    assert [each.status for each in answer.receipts] == [APPLIED, APPLIED, FAILED]
    assert [each.status for each in receipts] == [APPLIED, APPLIED, FAILED]
    assert "there: " in answer.receipts[2].detail and answer.receipts[2].step == step


def test_a_run_that_ends_first_says_that_the_teacher_was_not_taken(tmp_path: Path) -> None:
    Slow.may_answer.clear()
    _, digest = saved(professor(), tmp_path)
    of, counted = teachers(tmp_path, factory=Slow, sample=questions(4)), list[pb.CommandReceipt]()
    registrations = TeacherRegistrations(of, counted.append)
    of.begin(digest, 5)
    receipts = [pb.CommandReceipt(command_id="t", status=PENDING)]
    held = registrations.after(pb.RoundApplied(round=1, receipts=receipts), receipts, 5)

    said = registrations.end(9)
    Slow.may_answer.set()

    assert not held.answers and [each.round for each in said.answers] == [1]
    assert said.answers[0].receipts[0].status == FAILED and "run ended" in said.answers[0].receipts[0].detail
    assert of.settle(10) is None and of.current is None


def test_on_a_replay_a_teacher_is_waited_for_and_taken_at_the_step_of_then(tmp_path: Path) -> None:
    Slow.may_answer.set()
    _, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path)
    registrations = TeacherRegistrations(
        of, lambda receipt: None, {"optimizer/7-0": pb.CommandReceipt(status=APPLIED, step=24)}
    )
    of.begin(digest, 5)
    receipts = [pb.CommandReceipt(command_id="t", status=PENDING, entry_id="7-0")]
    of.wait()

    early = registrations.after(pb.RoundApplied(round=1, receipts=receipts), receipts, 5)
    between = registrations.after(pb.RoundApplied(round=2), [], 16)
    then = registrations.after(pb.RoundApplied(round=3), [], 24)

    assert not early.receipts and not between.receipts
    assert [(each.status, each.step) for each in then.receipts] == [(APPLIED, 24)]


def test_on_a_replay_what_was_refused_is_refused_though_its_file_has_been_brought_since(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of, refused = teachers(tmp_path), pb.CommandReceipt(status=FAILED, detail="no file then", step=24)
    registrations = TeacherRegistrations(of, lambda receipt: None, {"optimizer/7-0": refused})
    of.begin(digest, 5)
    receipts = [pb.CommandReceipt(command_id="t", status=PENDING, entry_id="7-0")]

    registrations.after(pb.RoundApplied(round=1, receipts=receipts), receipts, 5)
    then = registrations.after(pb.RoundApplied(round=3), [], 24)

    assert [(each.status, each.detail) for each in then.receipts] == [(FAILED, "no file then")]
    assert of.current is None


def test_the_present_teacher_answers_until_the_next_one_is_taken(tmp_path: Path) -> None:
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    told = Told()
    of = teachers(tmp_path, told)
    of.begin(first, 1)
    settled(of, 2)
    of.begin(second, 3)
    of.wait()
    between = of.predict(questions())

    said = settled(of, 4)

    after = of.predict(questions())
    assert between is not None and torch.equal(between, answers(professor(0), questions()))
    assert after is not None and torch.equal(after, answers(professor(1), questions()))
    assert said.status == APPLIED and said.detail.startswith(f"teacher {second[:12]} of 13155 parameters")
    assert told.names == ["teacher.registered"] * 2 and told.events[1][2]["step"] == "4"


def test_a_budget_is_shared_while_two_are_held_and_had_whole_afterwards(tmp_path: Path) -> None:
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    told = Told()
    of = teachers(tmp_path, told, settings=TeacherSettings(budget_bytes=80_000))  # one of them is 52,624
    of.begin(first, 1)
    settled(of, 2)
    of.begin(second, 3)

    settled(of, 4)

    assert of.current is not None and (of.current.digest, of.current.mode) == (second, "full")
    [skipped, *_] = [facts["reason"] for _, name, facts in told.events if name == "teacher.mode_skipped"]
    assert skipped == "105248 bytes, 52624 of them of the teacher in use; the budget is 80000"
    assert of.current.resident_bytes() == 52_624


def test_what_a_budget_refuses_beside_another_teacher_says_how_much_is_that_ones(tmp_path: Path) -> None:
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    of = teachers(tmp_path, settings=TeacherSettings(budget_bytes=53_000))
    of.begin(first, 1)
    settled(of, 2)
    of.begin(second, 3)

    said = settled(of, 4)

    assert said.status == FAILED and ", 52624 of them of the teacher in use; the budget is 53000" in said.detail
    assert of.current is not None and of.current.digest == first


def test_neither_building_nor_loading_draws_a_number_or_makes_weights_twice(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    built: list[Professor] = []

    def factory() -> Professor:
        built.append(Professor())
        return built[-1]

    of, before = teachers(tmp_path, factory=factory), torch.get_rng_state()
    of.begin(digest, 1)
    settled(of, 2)

    assert torch.equal(torch.get_rng_state(), before) and len(built) == 1
    logits = of.predict(questions())
    assert logits is not None and torch.equal(logits, answers(professor(), questions()))


class Scaled(Professor):
    """With a tensor that is in no state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = [torch.full((), 2.0)]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factors[0]


class Hidden(Professor):
    """With a buffer that is in no state_dict."""

    two: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("two", torch.full((), 2.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.two


class Reading(Professor):
    """Reads a tensor while it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = float(torch.full((), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


@pytest.mark.parametrize("factory", [Scaled, Hidden, Reading])
def test_what_a_model_holds_beside_its_weights_is_there(factory: type[Professor], tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path, factory=factory)
    of.begin(digest, 1)
    settled(of, 2)

    logits = of.predict(questions())

    assert logits is not None and torch.equal(logits, 2.0 * answers(professor(), questions()))


def test_a_checkpoint_goes_on_with_the_teacher_that_was_on_its_way(tmp_path: Path) -> None:
    Slow.may_answer.clear()
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    of = teachers(tmp_path)
    of.register(first, 1)
    slow = teachers(tmp_path, factory=Slow, sample=questions(4))
    slow.current = of.current
    slow.begin(second, 3)
    state = slow.state_dict()
    slow.close()
    Slow.may_answer.set()

    resumed = teachers(tmp_path)
    resumed.load_state_dict(state)

    assert state == {"digest": first, "pending": [second], "chance": ""}
    assert resumed.current is not None and resumed.current.digest == second
