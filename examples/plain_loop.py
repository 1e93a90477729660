"""A plain training loop, steered: the five lines are those that name `run` or `step`."""

from __future__ import annotations

import sys

import torch
from torch import nn

import esper
from esper.examples import digits


def train(num_epochs: int) -> float:
    """Train the digits' host, steered where ESPER_RUN names a live run; the accuracy on the test examples."""
    data, model = digits.Digits.load(torch.device("cpu")), digits.host()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    holdout = ([data.holdout], nn.CrossEntropyLoss(reduction="none"))
    with esper.attach(model, optimizer=optimizer, sites=["hidden", "head"], holdout=holdout, required=False) as run:
        for epoch in range(num_epochs):
            for inputs, targets in digits.batches(data.train, epoch, rank=0, world_size=1):
                with run.step() as step:
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    optimizer.zero_grad()
                    step.loss(loss, examples=len(inputs))
            run.epoch_end()
    return float(digits.accuracy(model, data.test))


if __name__ == "__main__":
    print(f"accuracy {train(int(sys.argv[1]) if sys.argv[1:] else 20):.3f}")
