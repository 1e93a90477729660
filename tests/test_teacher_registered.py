"""REGISTER_TEACHER: by digest, between two steps, and the training is untouched where it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from esper.errors import RefusedError
from esper.kernels.teacher.settings import TeacherSettings
from esper.leyline import contracts as pb
from esper.leyline.validate.bounds import SENTENCE_BYTES
from esper.tolaria.teachers.teachers import ELSEWHERE, Teachers, TeacherSource
from tests.altered import altered
from tests.teacher_kit import Professor, Starved, Told, answers, professor, questions, saved, teachers

REFUSED = pb.ReasonCode.REASON_TEACHER_REFUSED


def refusal(of: Teachers, digest: str) -> str:
    with pytest.raises(RefusedError) as error:
        of.register(digest, 5)
    assert error.value.reason == REFUSED
    return error.value.detail


def test_a_registered_teacher_answers_and_says_what_it_is(tmp_path: Path) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    of = teachers(tmp_path, told, sample=questions(4))

    said = of.register(digest, 5)

    logits = of.predict(questions())
    assert logits is not None and torch.equal(logits, answers(professor(), questions()))
    assert f"teacher {digest[:12]} of 13155 parameters in mode full: 52624 bytes, loaded in " in said
    [(level, name, facts)] = told.events
    assert (level, name) == (pb.TelemetryLevel.TELEMETRY_INFO, "teacher.registered")
    assert facts["digest"] == digest and facts["step"] == "5" and facts["teacher_params_registered"] == "13155"
    assert facts["teacher_relative_error"] == "0"


def test_its_figures_are_taken_once(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path, sample=questions(4))
    of.register(digest, 1)

    measured = of.take_measured()

    assert {
        "memory_before_checkpoint",
        "memory_after_checkpoint",
        "checkpoint_overhead_ms",
        "recomputation_count",
        "memory_saved_gb",
        "teacher_params_registered",
        "teacher_bytes",
        "teacher_load_ms",
        "teacher_relative_error",
    } == {*measured}
    assert measured["memory_saved_gb"] > 0 and of.take_measured() == {}


def test_another_digest_replaces_it_and_the_same_one_changes_nothing(tmp_path: Path) -> None:
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    of = teachers(tmp_path)
    of.register(first, 1)
    present = of.current

    again = of.register(first, 2)
    kept = of.current is present
    of.register(second, 3)

    logits = of.predict(questions())
    assert again == f"teacher {first[:12]} is registered already" and kept
    assert logits is not None and torch.equal(logits, answers(professor(1), questions()))
    assert present is not None and present.resident_bytes() <= 4


def test_a_teacher_that_was_prepared_is_loaded_though_its_file_is_gone_by_then(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path)
    of.prepare(digest)
    path.unlink()

    of.register(digest, 1)

    logits = of.predict(questions())
    assert logits is not None and torch.equal(logits, answers(professor(), questions()))
    with pytest.raises(RefusedError, match="there: none"):
        of.prepare("0" * 64)


def test_a_wrong_digest_is_refused_and_the_present_teacher_stays(tmp_path: Path) -> None:
    (_, good), (path, bad) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    path.write_bytes(altered(path.read_bytes()))
    of = teachers(tmp_path)
    of.register(good, 1)

    details = [refusal(of, digest) for digest in (bad, "0" * 64, "../" + good, "")]

    logits = of.predict(questions())
    assert (
        f"sha256 of {bad}.safetensors" in details[0]
        and f"there: {', '.join(sorted((good[:12], bad[:12])))}" in (details[1])
    )
    assert all("64 lowercase hex digits" in detail for detail in details[2:])
    assert logits is not None and torch.equal(logits, answers(professor(0), questions()))


def test_a_refused_teacher_leaves_no_trace_in_the_random_numbers_of_the_run(tmp_path: Path) -> None:
    (_, good), (_, other) = saved(professor(), tmp_path), saved(nn.Linear(2, 2), tmp_path)
    of, before = teachers(tmp_path, sample=questions(4)), torch.get_rng_state()

    of.register(good, 1)
    detail = refusal(of, other)

    assert "near: " in detail
    assert torch.equal(torch.get_rng_state(), before)


class Overflowing(Professor):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.inf


class Choosy(Professor):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, :3])


@pytest.mark.parametrize(
    ("factory", "said"),
    [(Overflowing, "logits of the sample is 'not finite'"), (Choosy, "RuntimeError.*mat1 and mat2")],
)
def test_a_teacher_that_fails_on_the_sample_is_not_taken(factory: type[Professor], said: str, tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path, factory=factory, sample=questions(4))

    with pytest.raises(RefusedError, match=said):
        of.register(digest, 1)

    assert of.current is None and of.predict(questions()) is None


class Saving(Professor):
    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x)
        y: Tensor = checkpoint(super().forward, x, use_reentrant=True)
        return y


class Writing(Professor):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(1.0))


class Still(Professor):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


@pytest.mark.parametrize("factory", [Saving, Writing, Still])
def test_a_teacher_without_a_gradient_to_its_inputs_is_taken_and_told_of(
    factory: type[Professor], tmp_path: Path
) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    of = teachers(tmp_path, told, factory=factory, sample=questions(4))

    of.register(digest, 1)

    answer = of.predict(questions())
    assert answer is not None and torch.equal(answer, answers(professor(), questions()))
    assert told.names == ["teacher.checkpointing_unmeasured", "teacher.registered"]


def broken() -> Professor:
    torch.rand(3)
    raise KeyError("width")


def test_a_factory_that_fails_is_refused_with_what_it_raised(tmp_path: Path) -> None:
    (_, digest), before = saved(professor(), tmp_path), torch.get_rng_state()

    assert refusal(teachers(tmp_path, factory=broken), digest) == (
        "teacher's factory is 'KeyError'; expected a model: 'width'"
    )
    assert torch.equal(torch.get_rng_state(), before)


class Verbose(Professor):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("what a compiler says\n" * 1000)


def verbose() -> Professor:
    raise RuntimeError("a" * 10_000)


@pytest.mark.parametrize("factory", [Verbose, verbose])
def test_a_refusal_says_no_more_than_a_receipt_can_hold(factory: Callable[[], Professor], tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)

    said = refusal(teachers(tmp_path, factory=factory, sample=questions(4)), digest)

    assert "RuntimeError" in said and len(said.encode()) < SENTENCE_BYTES


def test_a_factory_that_gives_the_student_itself_is_refused_and_the_student_goes_on_learning(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    student = professor(4)
    of = Teachers(TeacherSource(tmp_path, lambda: student), taken=student.parameters)

    assert "it is being trained" in refusal(of, digest)
    assert all(parameter.requires_grad and parameter.numel() for parameter in student.parameters())


def test_a_batch_distils_into_the_student_and_without_a_teacher_nothing_is_added(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    student, of = professor(4).eval(), teachers(tmp_path)
    before = of.distil(student(questions()), questions())
    of.register(digest, 1)

    loss = of.distil(student(questions()), questions())
    torch.autograd.backward(loss)

    expected = of.source.loss(student(questions()), answers(professor(), questions()))
    assert not before.any() and torch.equal(loss, expected)
    assert all(parameter.grad is not None for parameter in student.parameters())


def test_where_no_mode_has_memory_the_teacher_is_dropped_and_training_goes_on_without(tmp_path: Path) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    of = teachers(tmp_path, told, factory=Starved, sample=questions(4))
    of.register(digest, 1)

    logits = of.predict(questions(5))

    assert logits is None and of.current is None
    assert not of.distil(torch.zeros(5, 3), questions(5)).any()
    assert (told.names[0], told.names[-1]) == ("teacher.registered", "teacher.dropped")
    assert set(told.names[1:-1]) == {"teacher.fell_back"}
    assert told.events[-1][0] == pb.TelemetryLevel.TELEMETRY_CRITICAL


def test_it_fits_a_budget_by_a_mode_that_needs_less(tmp_path: Path) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    of = teachers(tmp_path, told, settings=TeacherSettings(budget_bytes=12_000))

    of.register(digest, 1)

    assert of.current is not None and of.current.mode == "offload"
    assert told.names[-1] == "teacher.registered" and set(told.names[:-1]) == {"teacher.mode_skipped"}


def test_all_that_it_holds_is_its_own(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of = teachers(tmp_path)
    nobody = list(of.named())
    of.register(digest, 1)

    own = list(of.named())

    assert nobody == [] and len(own) == 2 * len(list(professor().parameters()))
    assert all(isinstance(parameter, nn.Parameter) and of.owns(parameter) for _, parameter in own)


def test_its_precision_can_be_checked_at_any_time(tmp_path: Path) -> None:
    (_, digest), told = saved(professor(), tmp_path), Told()
    of = teachers(tmp_path, told, settings=TeacherSettings(amp_dtype=torch.bfloat16, max_relative_error=1e-6))
    none = of.check(questions())
    of.register(digest, 1)

    assert none == 0.0 and of.check(questions()) > 1e-6
    assert told.names == ["teacher.registered", "teacher.diverged"]


def test_a_checkpoint_goes_on_with_the_teacher_of_its_time(tmp_path: Path) -> None:
    (_, first), (path, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    told = Told()
    of = teachers(tmp_path, told)
    states = [of.state_dict()]
    for digest in (first, second):
        of.register(digest, 1)
        states.append(of.state_dict())

    of.load_state_dict(states[1])
    logits = of.predict(questions())
    path.unlink()
    of.load_state_dict(states[2])
    gone = of.current
    of.load_state_dict(states[1])
    of.load_state_dict(states[0])

    assert [state["digest"] for state in states] == ["", first, second]
    assert logits is not None and torch.equal(logits, answers(professor(0), questions()))
    assert gone is None and told.names.count("teacher.dropped") == 1
    assert of.current is None


def test_one_that_was_in_use_when_it_was_asked_for_is_loaded_where_that_was_gone_back_behind(tmp_path: Path) -> None:
    (_, first), (_, second) = saved(professor(0), tmp_path), saved(professor(1), tmp_path)
    of = teachers(tmp_path)
    of.register(first, 1)
    state = of.state_dict()
    of.register(second, 2)
    of.begin(second, 3)

    of.load_state_dict(state)
    of.wait()
    outcome = of.settle(9)
    logits = of.predict(questions())

    assert outcome is not None and outcome.status == pb.ReceiptStatus.RECEIPT_APPLIED
    assert logits is not None and torch.equal(logits, answers(professor(1), questions()))


def test_one_in_use_stays_where_another_rank_cannot_have_it_when_it_is_asked_for_again(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    of = Teachers(TeacherSource(tmp_path, Professor), agree=lambda flags: torch.tensor([0.5, 0.5, 0.0, 0.0]))
    of.register(digest, 1)
    of.begin(digest, 2)

    outcome = of.settle(9)
    logits = of.predict(questions())

    assert outcome is not None and outcome.detail == ELSEWHERE
    assert logits is not None and torch.equal(logits, answers(professor(), questions()))
