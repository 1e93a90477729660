"""What a teacher is made from and gives: one clear error where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from esper.errors import SettingError
from esper.kernels.teacher.settings import TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.models import create_teacher_model
from esper.tolaria.teachers.teachers import TeacherSource
from tests.teacher_kit import Professor, answers, professor, questions, saved, state_of


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
        path, digest = saved(state_of(tensors), tmp_path)
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


def test_the_kernel_documents_path_gives_the_factorys_model_and_draws_nothing_of_the_run(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    before = torch.get_rng_state()

    model = create_teacher_model(TeacherSource(tmp_path, Professor))
    teacher = CheckpointedTeacher(model, checkpoint_path=path, digest=digest)

    assert isinstance(model, Professor) and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(teacher(questions()), answers(professor(), questions()))
    with pytest.raises(SettingError, match="teacher's factory is 'TypeError'"):
        create_teacher_model(TeacherSource(tmp_path, {}.__getitem__))  # type: ignore[arg-type]
