"""A net with one site, trained by the squares of what it gives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from esper.session import Session
from tests.seed_kit import Op
from tests.session_kit import on_seed, order, own_optimizer, unsteered
from tests.site_kit import OPEN, squares

ROWS = torch.linspace(-2, 2, 8 * 6).reshape(8, 6).sin()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body, self.site, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.site(torch.tanh(self.body(x)))))
        return y


def backward(host: nn.Module, x: Tensor) -> Tensor:
    loss = squares(host(x)).mean()
    torch.autograd.backward(loss)
    return loss


Loss = Callable[[nn.Module, Tensor], Tensor]


def train(run: Session, host: nn.Module, x: Tensor, num_steps: int, loss: Loss = backward) -> None:
    for _ in range(num_steps):
        with run.step() as step:
            step.loss(loss(host, x))
            run.optimizer.step()
            run.optimizer.zero_grad()


def start(run: Session, host: nn.Module, x: Tensor, loss: Loss = backward) -> None:
    train(run, host, x, 1, loss)
    sow = on_seed(Op.SEED_OP_GERMINATE, site="site", blueprint_id="mlp")
    order(run, sow, own_optimizer("s0", 0.02), on_seed(Op.SEED_OP_START_TRAINING))


def attached(host: nn.Module, x: Tensor, lr: float = 0.05) -> Session:
    held_out = ([(x, torch.empty(0))], lambda outputs, _: squares(outputs))
    return unsteered(host, torch.optim.SGD(host.parameters(), lr=lr), "site", settings=OPEN, holdout=held_out)
