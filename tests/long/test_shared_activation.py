"""A module without a width of its own may be called with several: no seed can be at home in all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.seed_kit import equal
from tests.site_kit import Plot, alone

ROWS = torch.linspace(-2, 2, 8 * 6).reshape(8, 6).sin()


class Shared(nn.Module):
    """As the activations of a ResNet's bottleneck, or a diffusion model's blocks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.act, self.down = nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.down(self.act(self.up(x))))
        return y


def test_a_seed_there_says_which_shapes_met_and_the_host_trains_as_alone() -> None:
    one = Plot(Shared(), ROWS, ("act",), lr=1e-2)
    one.train()
    one.start("act")

    one.train(3)

    assert one.executor.seeds["s0"].fault.endswith(
        "; the seed is built for the site's [8, 12], and a call of it gave [8, 6]"
    )
    assert equal(one.host.state_dict(), alone(one, Shared(), 4).host.state_dict())
