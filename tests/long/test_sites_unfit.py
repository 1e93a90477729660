"""Sites of which nobody could add to the output: a seed is refused there, and the host trains as it would alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from esper.leyline.lifecycle import TRAINING
from esper.session import Session
from tests.net_kit import ROWS, Net, attached, backward, start, train
from tests.seed_kit import equal


class Becomes(nn.Module):
    def __init__(self, kind: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return self.kind(x)


class Carries(Net):
    """What flows through its site is of a kind of its own."""

    def __init__(self, kind: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.site = Becomes(kind)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        h = self.site(self.body(x))
        y: Tensor = self.head(torch.cat([*h.unbind()]) if h.is_nested else h.to_dense().float())
        return y


class Narrow(Net):
    """Its site is given a sparse tensor, and gives a dense one."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.site(torch.relu(self.body(x)).to_sparse()))
        return y


UNFIT: dict[str, Callable[[Tensor], Tensor]] = {
    "nested": lambda h: torch.nested.as_nested_tensor([*h[:, None]], layout=torch.jagged),
    "sparse": Tensor.to_sparse,
    "of float8": lambda h: h.to(torch.float8_e4m3fn),
}


def grown(host: nn.Module) -> Session:
    """With a seed commanded into the site, and five steps trained."""
    run = attached(host, ROWS)
    start(run, host, ROWS)
    train(run, host, ROWS, 4)
    return run


def trained_alone(host: nn.Module) -> nn.Module:
    optimizer = torch.optim.SGD(host.parameters(), lr=0.05)
    for _ in range(5):
        backward(host, ROWS)
        optimizer.step()
        optimizer.zero_grad()
    return host


@pytest.mark.parametrize("kind", UNFIT)
def test_a_seed_is_refused_where_the_output_is(kind: str) -> None:
    host = Carries(UNFIT[kind])

    run = grown(host)

    assert "s0" not in run.executor.seeds
    assert equal(host.state_dict(), trained_alone(Carries(UNFIT[kind])).state_dict())


def test_a_seed_learns_where_only_the_input_is_sparse() -> None:
    host = Narrow()

    run = grown(host)

    seed = run.executor.seeds["s0"]
    assert (seed.stage, seed.fault, seed.violation, seed.meter.fits.total) == (TRAINING, "", "", 4)
    assert equal(host.state_dict(), trained_alone(Narrow()).state_dict())
