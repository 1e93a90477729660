"""The handwritten digits of the examples are those that scikit-learn's own loader gives."""

from __future__ import annotations

import torch

from esper.examples.digits import Digits


def test_the_three_parts_are_all_images_of_the_loader_once() -> None:
    from sklearn.datasets import load_digits  # most of two seconds, and no other test of this worker may need it

    bundle = load_digits()
    order = torch.randperm(len(bundle.target), generator=torch.Generator().manual_seed(0))

    digits = Digits.load(torch.device("cpu"))

    images, classes = (torch.cat(each) for each in zip(digits.test, digits.holdout, digits.train, strict=True))
    assert torch.equal(images, torch.tensor(bundle.data, dtype=torch.float32)[order] / 16.0)
    assert torch.equal(classes, torch.tensor(bundle.target)[order])
    assert (len(digits.train[0]), len(digits.holdout[0]), len(digits.test[0])) == (1077, 360, 360)
