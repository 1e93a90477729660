"""A teacher says the same in every mode, holds what its mode says, and never learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kernels.teacher import int8
from esper.kernels.teacher.divergence import DivergenceMonitor, relative_error
from esper.kernels.teacher.settings import MODES, Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.kernels.teacher.telemetry import CheckpointTelemetry, kept_bytes
from tests.teacher_kit import Professor, Told, answers, professor, questions, saved

AVAILABLE: list[Mode] = [mode for mode in MODES if mode != "int8" or int8.available()]
ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"


def teacher_of(model: nn.Module, directory: Path, told: Told | None = None, **settings: object) -> CheckpointedTeacher:
    """From the model's file; the wrapped one is a copy whose own weights are others."""
    path, digest = saved(model, directory)
    fresh = type(model)()
    chosen = TeacherSettings(**settings)  # type: ignore[arg-type]
    return CheckpointedTeacher(fresh, path, digest=digest, settings=chosen, tell=told or Told())


class Tied(nn.Module):
    """Its output weight is its embedding's, which it uses without calling the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.linear(self.body(self.embedding(tokens)), self.embedding.weight)


class Encoder(nn.TransformerEncoder):
    def __init__(self) -> None:
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        super().__init__(layer, 3, enable_nested_tensor=False)


@pytest.mark.parametrize("mode", AVAILABLE)
def test_every_mode_gives_the_models_logits_without_a_gradient(mode: Mode, tmp_path: Path) -> None:
    model, inputs = professor(), questions().requires_grad_()
    teacher = teacher_of(model, tmp_path, mode=mode).train()

    logits = teacher(inputs)

    assert not logits.requires_grad and not teacher.teacher.training
    assert relative_error(logits, answers(model, inputs)) <= (0.02 if mode == "int8" else 0.0)
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


@pytest.mark.parametrize("mode", AVAILABLE)
def test_it_holds_what_its_mode_says(mode: Mode, tmp_path: Path) -> None:
    model = professor()
    full = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    linear = sum(m.weight.nbytes for m in model.modules() if isinstance(m, nn.Linear))
    rows = sum(m.out_features for m in model.modules() if isinstance(m, nn.Linear))
    teacher = teacher_of(model, tmp_path, mode=mode)

    held = teacher.resident_bytes()

    block = sum(parameter.nbytes for parameter in model.blocks[0].parameters())
    assert held == {"full": full, "int8": full - linear + linear // 4 + 5 * rows, "offload": model.scale.nbytes}[mode]
    up = model.blocks[0].get_parameter("up.weight").nbytes  # the largest, which int8 makes anew while it runs
    assert teacher.expected_bytes(mode) == held + {"full": 0, "int8": up, "offload": block}[mode]


def test_one_that_is_not_loaded_yet_holds_nothing_and_answers_nothing(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    teacher = CheckpointedTeacher(professor(1), path, digest=digest, loaded=False)

    held = teacher.resident_bytes()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        teacher(questions())
    teacher.settle("full")

    assert held == 4 and torch.equal(teacher(questions()), answers(professor(), questions()))


def test_it_goes_from_any_mode_to_any_other_and_back(tmp_path: Path) -> None:
    model, inputs = professor(), questions()
    teacher = teacher_of(model, tmp_path)
    sizes: dict[str, int] = {}
    for mode in [*AVAILABLE, *reversed(AVAILABLE)]:
        teacher.settle(mode)
        held = sizes.setdefault(mode, teacher.resident_bytes())

        assert teacher.mode == mode and teacher.resident_bytes() == held
        assert relative_error(teacher(inputs), answers(model, inputs)) <= (0.02 if mode == "int8" else 0.0)


@pytest.mark.parametrize("mode", AVAILABLE)
def test_tied_weights_and_weights_used_without_a_call_are_there(mode: Mode, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, tokens = Tied(), torch.arange(11).reshape(1, 11)
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
    path, _ = saved(_state(state), tmp_path)
    teacher = CheckpointedTeacher(Tied(), path, settings=TeacherSettings(mode=mode))

    assert relative_error(teacher(tokens), answers(model, tokens)) <= (0.02 if mode == "int8" else 0.0)


@pytest.mark.parametrize("mode", AVAILABLE)
def test_torchs_own_transformer_is_a_teacher_in_every_mode(mode: Mode, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Encoder(), torch.randn(2, 5, 8)
    teacher = teacher_of(model, tmp_path, mode=mode)

    assert relative_error(teacher(inputs), answers(model, inputs)) <= (0.02 if mode == "int8" else 1e-6)


@pytest.mark.parametrize("mode", AVAILABLE)
def test_a_gradient_through_it_is_the_same_with_and_without_checkpointing(mode: Mode, tmp_path: Path) -> None:
    teacher = teacher_of(professor(), tmp_path, mode=mode)
    inputs = questions().requires_grad_()

    (plain,) = torch.autograd.grad(teacher.unchecked(inputs).square().sum(), inputs)
    (checked,) = torch.autograd.grad(teacher.through(inputs).square().sum(), inputs)

    assert torch.equal(plain, checked) and plain.any()
    assert teacher.segments.recomputation_count == 6
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize(("segments", "runs"), [(1, 1), (2, 2), (4, 4), (99, 7)])
def test_a_sequential_trunk_is_cut_into_as_many_segments_as_asked_for(segments: int, runs: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.Tanh())], nn.Linear(8, 3))
    inputs = questions().requires_grad_()
    (expected,) = torch.autograd.grad(model(inputs).sum(), inputs)
    teacher = CheckpointedTeacher(model, settings=TeacherSettings(checkpoint_segments=segments))

    (found,) = torch.autograd.grad(teacher.through(inputs).sum(), inputs)

    assert torch.equal(found, expected)
    assert teacher.segments.recomputation_count == runs


def test_checkpointing_saves_where_gradients_flow_and_nothing_under_no_grad(tmp_path: Path) -> None:
    teacher, telemetry = teacher_of(professor(), tmp_path), CheckpointTelemetry()

    metrics = telemetry.record_checkpoint_stats(teacher, questions(64))
    with torch.no_grad():
        plain = kept_bytes(teacher, lambda: teacher.unchecked(questions(64)))
        checked = kept_bytes(teacher, lambda: teacher.through(questions(64)))

    inputs_of_blocks = 6 * 64 * 16 * 4
    assert inputs_of_blocks / 1e9 <= metrics["memory_after_checkpoint"] < 0.3 * metrics["memory_before_checkpoint"]
    saved_gb = metrics["memory_before_checkpoint"] - metrics["memory_after_checkpoint"]
    assert metrics["memory_saved_gb"] == pytest.approx(saved_gb)
    assert metrics["recomputation_count"] == 18 and (plain, checked) == (0, 0)


def test_it_computes_in_its_own_precision_whatever_the_students_is(tmp_path: Path) -> None:
    inputs, model = questions(), professor()
    plain, low = (teacher_of(model, tmp_path, amp_dtype=dtype) for dtype in (None, torch.bfloat16))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        from_plain = plain(inputs)

    assert torch.equal(from_plain, answers(model, inputs))
    assert low(inputs).dtype == torch.bfloat16


def test_lower_precision_is_compared_with_float32_and_told_of_past_its_bound(tmp_path: Path) -> None:
    model, inputs, told = professor(), questions(), Told()
    exact = teacher_of(model, tmp_path, told)
    fine, coarse = (
        teacher_of(model, tmp_path, told, amp_dtype=torch.bfloat16, max_relative_error=bound) for bound in (0.05, 1e-6)
    )

    errors = [DivergenceMonitor(teacher, told).measure(inputs) for teacher in (exact, fine, coarse)]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = answers(model, inputs)
    expected = relative_error(low, answers(model, inputs))
    assert errors == [0.0, expected, expected] and 0 < expected < 0.05
    assert [(name, facts["bound"]) for _, name, facts in told.events] == [("teacher.diverged", "1e-06")]


def test_weights_may_be_held_in_half_the_bytes(tmp_path: Path) -> None:
    model = professor()
    teacher = teacher_of(model, tmp_path, dtype=torch.bfloat16)

    logits = teacher(questions().bfloat16())

    assert logits.dtype == torch.bfloat16
    assert teacher.resident_bytes() == sum(p.nbytes for p in model.parameters()) // 2 + 4
    assert torch.equal(teacher.reference(questions()).isfinite(), torch.ones(12, 3, dtype=torch.bool))
    assert teacher(questions().bfloat16()).equal(logits)


def test_a_mode_beyond_the_budget_is_passed_over_and_told_of(tmp_path: Path) -> None:
    model, told = professor(), Told()
    full = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    teacher = teacher_of(model, tmp_path, told, budget_bytes=full - 1)

    assert teacher.mode == AVAILABLE[1]
    assert told.events[0][1:] == (
        "teacher.mode_skipped",
        {"mode": "full", "reason": f"{full} bytes; the budget is {full - 1}"},
    )
    with pytest.raises(SettingError, match=r"teacher memory is .* the budget is 10"):
        teacher_of(model, tmp_path, budget_bytes=10)


class Hungry(nn.Module):
    """Asks the allocator for more than there is as long as its weights lie at full size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.rest = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        if all(type(parameter.data) is Tensor and not parameter.is_meta for parameter in self.rest.parameters()):
            torch.empty(2**60, dtype=torch.uint8)
        y: Tensor = self.rest(self.stem(x))
        return y


def test_where_memory_runs_out_it_goes_on_in_the_next_mode_and_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, told = Hungry(), Told()
    expected = nn.Sequential(model.stem, model.rest)(questions())
    teacher = teacher_of(model, tmp_path, told)

    logits = teacher(questions())

    assert relative_error(logits, expected.detach()) < 0.02
    [(_, name, facts)] = told.events
    assert name == "teacher.fell_back"
    assert (facts["was"], facts["now"]) == ("full", AVAILABLE[1]) and "memory" in facts["reason"].lower()


class Insatiable(Hungry):
    def forward(self, x: Tensor) -> Tensor:
        return torch.empty(2**60, dtype=torch.uint8)


def test_where_memory_runs_out_in_the_last_mode_the_allocators_error_comes_through(tmp_path: Path) -> None:
    told = Told()
    teacher = teacher_of(Insatiable(), tmp_path, told)

    with pytest.raises(RuntimeError, match="memory"):
        teacher(questions())

    assert told.names == ["teacher.fell_back"] * (len(AVAILABLE) - 1)


def test_a_file_of_another_model_is_one_clear_error_and_leaves_the_model_alone(tmp_path: Path) -> None:
    state = dict(professor().state_dict())
    wider = {**state, "head.weight": torch.zeros(4, 16)}
    renamed = {("top.weight" if name == "head.weight" else name): tensor for name, tensor in state.items()}
    fewer = {name: tensor for name, tensor in state.items() if name != "head.bias"}
    whole = {**state, "head.bias": torch.zeros(3, dtype=torch.int64)}
    said = {
        r"shape of the teacher's 'head.weight' is \(4, 16\); expected \(3, 16\)": wider,
        r"teacher's tensor is 'top.weight'; expected one that its model has; near: .*weight": renamed,
        r"teacher file is 'without head.bias'; expected every tensor of its model; near: ": fewer,
        r"dtype of the teacher's 'head.bias' is 'torch.int64'; expected torch.float32": whole,
    }
    for message, tensors in said.items():
        path, digest = saved(_state(tensors), tmp_path)
        model = professor(3)

        with pytest.raises(SettingError, match=message):
            CheckpointedTeacher(model, path, digest=digest)

        assert torch.equal(answers(model, questions()), answers(professor(3), questions()))


def test_its_parameters_are_its_own_from_the_first_to_the_last(tmp_path: Path) -> None:
    path, _ = saved(professor(), tmp_path)
    model = professor(1)
    first = list(model.parameters())
    teacher = CheckpointedTeacher(model, path)
    later = list(teacher.parameters())
    teacher.settle("offload")

    assert all(teacher.owns(parameter) for parameter in (*first, *teacher.parameters()))
    assert not any(teacher.owns(parameter) for parameter in professor(1).parameters())
    assert later[0] is not first[0] and first[0].numel() == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "half"}, "teacher mode is 'half'; expected one of full, int8, offload"),
        ({"checkpoint_segments": 0}, "checkpoint_segments is 0; expected at least 1"),
        ({"budget_bytes": -1}, "budget_bytes is -1"),
        ({"max_relative_error": 0.0}, "max_relative_error is 0.0"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        TeacherSettings(**settings)  # type: ignore[arg-type]


class Mute(nn.Module):
    def forward(self, x: Tensor) -> None: ...


def test_an_output_without_logits_is_one_clear_error() -> None:
    with pytest.raises(SettingError, match="teacher's output is 'NoneType'; expected a tensor"):
        CheckpointedTeacher(Mute())(questions())


@dataclass
class ModelOutput:
    """As models of transformers give it."""

    loss: Tensor | None
    logits: Tensor


class Wrapped(Professor):
    def forward(self, x: Tensor, *, shape: str = "") -> Any:
        logits = super().forward(x)
        return {"tuple": (None, logits), "mapping": {"logits": logits}, "object": ModelOutput(None, logits)}[shape]


@pytest.mark.parametrize("shape", ["tuple", "mapping", "object"])
def test_logits_are_found_in_what_models_give(shape: str) -> None:
    torch.manual_seed(0)

    logits = CheckpointedTeacher(Wrapped())(questions(), shape=shape)

    assert torch.equal(logits, answers(professor(), questions()))


def _state(tensors: dict[str, Tensor]) -> nn.Module:
    """Something whose state_dict is this."""

    class State(nn.Module):
        def state_dict(self, *args: object, **kwargs: object) -> dict[str, Tensor]:  # type: ignore[override]
            return tensors

    return State()
