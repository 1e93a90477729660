"""A seed folds into the weights of its site exactly where that gives the same function, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from esper.kernels.blueprints import BLUEPRINTS
from esper.kernels.residual import Residual

torch.set_num_threads(1)

IMAGE = (2, 8, 7, 7)

# blueprint, site, shape of its input
FOLDED: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
    ("noop", lambda: nn.Linear(8, 6), (5, 8)),
    ("lora", lambda: nn.Linear(8, 6), (5, 8)),
    ("lora", lambda: nn.Linear(8, 6, bias=False), (5, 7, 8)),
    ("lora", lambda: nn.Conv2d(8, 6, 3, padding=1), IMAGE),
    ("lora", lambda: nn.Conv1d(8, 6, 5, padding="same"), (2, 8, 9)),
    ("conv1x1", lambda: nn.Conv2d(8, 6, 1), IMAGE),
    ("conv1x1", lambda: nn.Conv2d(8, 6, 3, padding=2, dilation=2, padding_mode="reflect"), IMAGE),
    ("conv1x1", lambda: nn.Conv2d(8, 6, 3, stride=2), IMAGE),  # reads the output, bias and all
    ("conv1x1", lambda: nn.Conv1d(8, 6, 4, stride=3, bias=False), (2, 8, 9)),
    ("conv3x3", lambda: nn.Conv2d(8, 6, 3, padding=1), IMAGE),
    ("conv3x3", lambda: nn.Conv2d(8, 6, (5, 3), padding=(2, 1)), IMAGE),
    ("norm", lambda: nn.Linear(8, 6), (5, 8)),
    ("norm", lambda: nn.Conv2d(8, 6, 3, groups=2, stride=2), IMAGE),
    ("norm", lambda: nn.LayerNorm(8), (5, 7, 8)),
    ("norm", lambda: nn.GroupNorm(4, 8), IMAGE),
    ("norm", lambda: nn.BatchNorm2d(8), IMAGE),
]
KEPT: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
    ("mlp", lambda: nn.Linear(8, 6), (5, 8)),
    ("attention", lambda: nn.Linear(8, 6), (5, 7, 8)),
    ("se", lambda: nn.Conv2d(8, 6, 1), IMAGE),
    ("depthwise", lambda: nn.Conv2d(8, 6, 3, padding=1), IMAGE),
    ("lora", lambda: nn.LayerNorm(8), (5, 8)),
    ("lora", lambda: nn.Sequential(nn.Linear(8, 8)), (5, 8)),
    ("lora", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), (5, 8)),
    ("lora", lambda: _pruned(nn.Linear(8, 6)), (5, 8)),
    ("conv1x1", lambda: nn.Conv2d(8, 8, 3, padding=1, groups=2), IMAGE),
    ("conv1x1", lambda: nn.Conv2d(8, 8, 3, stride=2, groups=2), IMAGE),
    ("conv3x3", lambda: nn.Conv2d(8, 6, 1), IMAGE),  # its taps reach further than the site's
    ("conv3x3", lambda: nn.Conv2d(8, 6, 3, padding=1, padding_mode="circular"), IMAGE),
    ("conv3x3", lambda: nn.Conv2d(8, 6, 3, padding=2, dilation=2), IMAGE),
    ("conv3x3", lambda: nn.Conv2d(8, 6, 3, stride=2), IMAGE),
    ("norm", lambda: nn.Linear(8, 6, bias=False), (5, 8)),
    ("norm", lambda: nn.LayerNorm(8, elementwise_affine=False), (5, 8)),
]


def _pruned(linear: nn.Linear) -> nn.Module:
    prune.random_unstructured(linear, "weight", 0.5)  # type: ignore[no-untyped-call]
    return linear


def seeded(blueprint: str, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> tuple[nn.Module, Residual]:
    """A site in eval mode, with running statistics that matter, and a seed that has learnt something."""
    torch.manual_seed(0)
    site = make().double().eval()
    for tensor in site.buffers():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    seed = BLUEPRINTS[blueprint].build(site, torch.Size(shape), site(torch.zeros(shape).double()).shape, {}).double()
    assert isinstance(seed, Residual)
    for parameter in seed.parameters():
        nn.init.normal_(parameter, std=0.3)
    return site, seed


@pytest.mark.parametrize(("blueprint", "make", "shape"), FOLDED)
def test_a_folded_seed_is_the_same_function(
    blueprint: str, make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    site, seed = seeded(blueprint, make, shape)
    names = list(site.state_dict())
    x = torch.randn(shape).double()
    h = site(x)
    expected = h + 0.25 * seed(x, h)

    seed.absorb(0.25)

    assert seed.fold_into(site)
    torch.testing.assert_close(site(x), expected, rtol=1e-9, atol=1e-9)
    assert list(site.state_dict()) == names


@pytest.mark.parametrize(("blueprint", "make", "shape"), KEPT)
def test_a_seed_that_would_be_another_function_is_not_folded(
    blueprint: str, make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    site, seed = seeded(blueprint, make, shape)
    x = torch.randn(shape).double()
    before = site(x)

    assert not seed.fold_into(site)
    assert torch.equal(site(x), before)


def test_a_lora_folds_into_a_float32_linear_within_1e_5() -> None:
    linear = nn.Linear(64, 48)
    seed = BLUEPRINTS["lora"].build(linear, torch.Size((32, 64)), torch.Size((32, 48)), {"rank": 8})
    assert isinstance(seed, Residual)
    nn.init.normal_(seed.get_parameter("up.weight"), std=0.05)
    x = torch.randn(32, 64)
    expected = linear(x) + seed(x, linear(x))

    assert seed.fold_into(linear)
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)


def test_a_seed_folds_into_no_subclass_of_linear() -> None:
    class Odd(nn.Linear):
        pass

    site, seed = seeded("lora", lambda: Odd(8, 6), (5, 8))

    assert not seed.fold_into(site)
