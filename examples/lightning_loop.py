"""A Lightning module, steered by one callback. Needs the extra `lightning`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from esper.examples import digits
from esper.session.lightning import SteeringCallback


class Classifier(LightningModule):
    """The digits' host."""

    def __init__(self) -> None:
        super().__init__()
        self.net = digits.host()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(inputs)
        return logits

    def training_step(self, batch: Sequence[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.cross_entropy(self(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def steering(data: digits.Digits, **options: Any) -> SteeringCallback:
    holdout = ([data.holdout], nn.CrossEntropyLoss(reduction="none"))
    return SteeringCallback(["net.hidden", "net.head"], holdout=holdout, required=False, **options)


def train(num_epochs: int, callbacks: Sequence[Any], data: digits.Digits) -> Classifier:
    """The trained module."""
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*data.train), batch_size=16, shuffle=True)
    module = Classifier()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=num_epochs,
        accumulate_grad_batches=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    return module


def main() -> None:
    data = digits.Digits.load(torch.device("cpu"))
    module = train(int(sys.argv[1]) if sys.argv[1:] else 20, [steering(data)], data)
    print(f"accuracy {digits.accuracy(module, data.test):.3f}")


if __name__ == "__main__":
    main()
