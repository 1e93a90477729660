"""transformers' Trainer, steered by one callback. Needs the extra `trainer`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers

from esper.examples import digits
from esper.session.trainer import SteeringCallback


def examples(data: tuple[torch.Tensor, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    images = data[0].reshape(-1, 1, 8, 8)
    return [{"pixel_values": image, "labels": label} for image, label in zip(images, data[1], strict=True)]


def model() -> Any:
    """A tiny vision transformer, built from a config."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=10,
    )
    return transformers.ViTForImageClassification(config)


def loss_of(output: Any, targets: torch.Tensor) -> torch.Tensor:
    """Per example."""
    return torch.nn.functional.cross_entropy(output.logits, targets, reduction="none")


def steering(data: digits.Digits, **options: Any) -> SteeringCallback:
    held_out = [(data.holdout[0].reshape(-1, 1, 8, 8), data.holdout[1])]
    return SteeringCallback(["vit.layernorm", "classifier"], holdout=(held_out, loss_of), required=False, **options)


def train(num_steps: int, callbacks: Sequence[Any], data: digits.Digits) -> Any:
    """The trained Trainer."""
    with TemporaryDirectory() as directory:
        settings = transformers.TrainingArguments(
            directory,
            max_steps=num_steps,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model(), settings, train_dataset=examples(data.train), callbacks=list(callbacks))
        trainer.train()
    return trainer


def main() -> None:
    data = digits.Digits.load(torch.device("cpu"))
    train(int(sys.argv[1]) if sys.argv[1:] else 200, [steering(data)], data)


if __name__ == "__main__":
    main()
