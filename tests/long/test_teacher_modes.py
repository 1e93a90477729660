"""A teacher says the same in every mode, holds what its mode says, and never learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kernels.teacher.divergence import relative_error
from esper.kernels.teacher.settings import Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from tests.teacher_kit import AVAILABLE, Told, answers, professor, questions, saved, state_of, teacher_of


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
    path, _ = saved(state_of(state), tmp_path)
    teacher = CheckpointedTeacher(Tied(), path, settings=TeacherSettings(mode=mode))

    assert relative_error(teacher(tokens), answers(model, tokens)) <= (0.02 if mode == "int8" else 0.0)


@pytest.mark.parametrize("mode", AVAILABLE)
def test_torchs_own_transformer_is_a_teacher_in_every_mode(mode: Mode, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Encoder(), torch.randn(2, 5, 8)
    teacher = teacher_of(model, tmp_path, mode=mode)

    assert relative_error(teacher(inputs), answers(model, inputs)) <= (0.02 if mode == "int8" else 1e-6)


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
