"""Losses of transformers' Trainer: its model's, and those that are computed outside, as sentence-transformers does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


class Scores(nn.Module):
    """Its output holds no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.head(x)}


class Losing(nn.Module):
    """Its output holds a share of the step's loss, as that of transformers' own models."""

    def __init__(self, computed: list[float]) -> None:
        super().__init__()
        self.head, self.computed = nn.Linear(4, 3), computed

    def forward(self, x: Tensor, labels: Tensor, num_items_in_batch: Tensor, **_: object) -> dict[str, Tensor]:
        loss = nn.functional.cross_entropy(self.head(x), labels, reduction="sum")
        self.computed.append(loss.item() / len(x))
        return {"loss": loss / num_items_in_batch}


def trained(
    folder: Path, *, follows: bool, has_loss: bool = False
) -> tuple[list[float], list[float | None], list[str]]:
    """Losses of the micro-batches, two to a step; the loss that each step has told; and what was logged."""
    from transformers import Trainer, TrainingArguments

    from esper.session.trainer import SteeringCallback
    from tests.system.frameworks import AfterStepsOfTrainer, newest_loss

    computed: list[float] = []
    noted: list[float | None] = []

    def loss_of(outputs: dict[str, Tensor], labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum")
        computed.append(loss.item() / len(labels))
        return loss / num_items_in_batch

    def heard(_: int) -> bool:
        noted.append(newest_loss(steering))
        return False

    generator = torch.Generator().manual_seed(1)
    examples = [{"x": torch.randn(4, generator=generator), "labels": torch.tensor(at % 3)} for at in range(32)]
    settings = TrainingArguments(
        str(folder),
        max_steps=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    steering = SteeringCallback(["head"], required=False)
    trainer = Trainer(
        Losing(computed) if has_loss else Scores(),
        settings,
        train_dataset=examples,
        callbacks=[steering, AfterStepsOfTrainer(heard)],
        compute_loss_func=None if has_loss else loss_of,
    )
    if follows:
        steering.follow(trainer)
    with capture_logs() as events:
        trainer.train()
    return computed, noted, [each["event"] for each in events]


@pytest.mark.parametrize(("follows", "has_loss"), [(True, False), (True, True), (False, True)])
def test_each_step_is_told_the_mean_over_its_micro_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follows: bool, has_loss: bool
) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)

    computed, noted, logged = trained(tmp_path, follows=follows, has_loss=has_loss)

    means = [(one + other) / 2 for one, other in zip(computed[::2], computed[1::2], strict=True)]
    assert noted == pytest.approx(means, rel=1e-6)
    assert len(noted) == 3 and "loss.unknown" not in logged


def test_one_that_is_not_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)

    _, noted, logged = trained(tmp_path, follows=False)

    assert noted == [None, None, None]
    assert logged.count("loss.unknown") == 1
