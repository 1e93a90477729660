"""A tiny training loop on one rank, a step of which a test takes when it likes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import esper
from esper.session import Session
from tests.system.scripted import Script

REST_S = 0.002  # between two steps


class Loop:
    """Whoever inherits attaches `run` to the model."""

    run: Session

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs, self.targets = torch.randn(16, 4), torch.randint(0, 2, (16,))

    def step(self) -> None:
        with self.run.step() as step:
            loss = nn.functional.cross_entropy(self.model(self.inputs), self.targets)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad()
            step.loss(loss)

    def steps_until(self, reached: Callable[[], bool], limit: int = 200_000, rest_s: float = REST_S) -> None:
        """Train on until something shows; the limit turns a hang into a failure.

        Without a rest between two steps it takes a core from whoever is waited for.
        """
        for _ in range(limit):
            if reached():
                return
            self.run.exchange.pump(rest_s)
            self.step()
        raise AssertionError("never reached")


class Scripted(Loop):
    """Steered by the test's script."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.run: Session = esper.attach(
            self.model, optimizer=self.optimizer, sites=["0", "2"], environment=script.environment()
        )

    def step_and_measure(self) -> float:
        """One step; the rate it used, as the ratio of what the bias moved by to its gradient."""
        seen: list[float] = []
        bias = self.model[2].bias
        assert isinstance(bias, nn.Parameter)
        before = bias.detach().clone()
        hook = self.optimizer.register_step_pre_hook(lambda *_: seen.append(float(bias.grad.norm())))  # type: ignore[union-attr]
        self.step()
        hook.remove()
        return float((bias.detach() - before).norm()) / seen[0]

    def hear_until(self, reached: Callable[[], bool], limit: int = 60) -> None:
        """Listen to the runtime between two steps, without beginning the next."""
        for _ in range(limit):
            if reached():
                return
            self.run.exchange.pump(1.0)
        raise AssertionError("never heard")
