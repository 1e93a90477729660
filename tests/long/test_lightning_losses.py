"""Losses of Lightning's Trainer, which divides each by the number of micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def test_each_step_is_told_the_mean_over_its_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch import LightningModule, Trainer

    from esper.session.lightning import SteeringCallback
    from tests.system.frameworks import AfterStepsOfLightning, newest_loss

    monkeypatch.delenv("ESPER_RUN", raising=False)
    computed, noted = list[float](), list[float | None]()

    class Scores(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            loss = nn.functional.cross_entropy(self.head(batch[0]), batch[1])
            computed.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def heard(_: int) -> bool:
        noted.append(newest_loss(steering))
        return False

    steering = SteeringCallback(["head"], required=False)
    trainer = Trainer(
        max_steps=3,
        accumulate_grad_batches=2,
        callbacks=[steering, AfterStepsOfLightning(heard)],
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    generator = torch.Generator().manual_seed(1)
    examples = TensorDataset(torch.randn(24, 4, generator=generator), torch.arange(24) % 3)

    trainer.fit(Scores(), DataLoader(examples, batch_size=4))

    means = [(one + other) / 2 for one, other in zip(computed[::2], computed[1::2], strict=True)]
    assert noted == pytest.approx(means, rel=1e-6)
    assert len(noted) == 3
