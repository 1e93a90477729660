"""Blueprints are residuals that begin at zero wherever they fit, in every dtype, compiled or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from esper.errors import RefusedError
from esper.kernels.blueprints import BLUEPRINTS, find, fitting
from esper.kernels.residual import Residual
from esper.leyline import contracts as pb

torch.set_num_threads(1)

ANYWHERE = {"noop", "norm", "lora", "mlp"}
CONVOLUTIONAL = {"depthwise", "conv1x1", "conv3x3", "se"}


class Attended(nn.Module):
    """A site whose output is that of an attention block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return y


# name -> (makes the site, its input's shape, blueprints that fit there)
SITES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "linear": (lambda: nn.Linear(8, 6), (5, 8), ANYWHERE),
    "linear on tokens": (lambda: nn.Linear(8, 12), (5, 7, 8), ANYWHERE | {"attention"}),
    "linear on images": (lambda: nn.Linear(8, 6), (2, 4, 5, 8), ANYWHERE),
    "conv1d": (lambda: nn.Conv1d(8, 6, 3, padding=1), (2, 8, 9), ANYWHERE | CONVOLUTIONAL),
    "conv1d with a stride": (lambda: nn.Conv1d(8, 6, 3, stride=2), (2, 8, 9), ANYWHERE | CONVOLUTIONAL),
    "conv2d": (lambda: nn.Conv2d(8, 6, 3, padding=1), (2, 8, 4, 5), ANYWHERE | CONVOLUTIONAL),
    "conv2d with a stride": (lambda: nn.Conv2d(8, 6, 3, stride=2), (2, 8, 7, 7), ANYWHERE | CONVOLUTIONAL),
    "layer norm": (lambda: nn.LayerNorm(8), (5, 7, 8), ANYWHERE | {"attention"}),
    "attention": (Attended, (5, 7, 8), ANYWHERE | {"attention"}),
}
OF_SITE = {site: sorted(names) for site, (_, _, names) in SITES.items()}
# One site of each layout, for what takes longer.
FEW = [("linear", name) for name in sorted(ANYWHERE - {"noop"})] + [("layer norm", "attention")]
FEW += [("conv2d", name) for name in sorted(CONVOLUTIONAL)]
COMPILED = [(*pair, "aot_eager") for pair in FEW] + [("linear", "lora", "eager"), ("conv2d", "se", "eager")]


def at_site(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor, Tensor]:
    """The site, an input and its output."""
    make, shape, _ = SITES[name]
    torch.manual_seed(0)
    site, x = make().to(dtype), torch.randn(shape).to(dtype)
    return site, x, site(x).detach()


def grown(blueprint: str, site: nn.Module, x: Tensor, h: Tensor, **given: float) -> Residual:
    seed = BLUEPRINTS[blueprint].build(site, x.shape, h.shape, given).to(h.dtype)
    assert isinstance(seed, Residual)
    return seed


def stirred(seed: Residual) -> Residual:
    """With every parameter away from zero."""
    for parameter in seed.parameters():
        nn.init.normal_(parameter, std=0.3)
    return seed


@pytest.mark.parametrize("site", SITES)
def test_a_site_takes_the_blueprints_that_fit_it(site: str) -> None:
    module, x, h = at_site(site)

    assert set(fitting(module, x.shape, h.shape)) == SITES[site][2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("site", SITES)
def test_a_new_seed_leaves_every_bit_of_the_output(site: str, dtype: torch.dtype) -> None:
    module, x, h = at_site(site, dtype)
    for blueprint in OF_SITE[site]:
        delta = grown(blueprint, module, x, h)(x, h)

        assert (delta.shape, delta.dtype) == (h.shape, h.dtype), blueprint
        assert torch.equal(h + delta, h), blueprint


@pytest.mark.parametrize("site", SITES)
def test_a_new_seed_can_learn(site: str) -> None:
    module, x, h = at_site(site)
    for blueprint in set(OF_SITE[site]) - {"noop"}:
        seed = grown(blueprint, module, x, h)

        torch.autograd.backward((seed(x, h) * torch.randn_like(h)).sum())

        assert any(p.grad is not None and p.grad.any() for p in seed.parameters()), blueprint


@pytest.mark.parametrize("site", SITES)
def test_a_forward_draws_no_random_number(site: str) -> None:
    module, x, h = at_site(site)
    for blueprint in OF_SITE[site]:
        seed = stirred(grown(blueprint, module, x, h))
        before = torch.get_rng_state()

        first, second = seed(x, h), seed(x, h)

        assert torch.equal(first, second), blueprint
        assert torch.equal(torch.get_rng_state(), before), blueprint


@pytest.mark.parametrize(("site", "blueprint", "backend"), COMPILED)
def test_a_compiled_seed_gives_the_same_values_and_gradients(site: str, blueprint: str, backend: str) -> None:
    module, x, h = at_site(site)
    seed = stirred(grown(blueprint, module, x, h))
    expected = seed(x, h)
    gradients = torch.autograd.grad(expected.square().sum(), list(seed.parameters()))

    value = torch.compile(seed, backend=backend, fullgraph=True)(x, h)

    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value.square().sum(), list(seed.parameters())), gradients)


@pytest.mark.parametrize(("site", "blueprint"), FEW)
def test_a_seed_works_under_autocast(site: str, blueprint: str) -> None:
    module, x, h = at_site(site)
    seed = stirred(grown(blueprint, module, x, h))
    expected = seed(x, h)

    with torch.autocast("cpu", torch.bfloat16):
        delta = seed(x, h.to(torch.bfloat16))

    torch.testing.assert_close(delta.float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("site", SITES)
def test_an_absorbed_alpha_is_part_of_delta(site: str) -> None:
    module, x, h = at_site(site, torch.float64)
    for blueprint in OF_SITE[site]:
        seed = stirred(grown(blueprint, module, x, h))
        expected = 0.25 * seed(x, h)

        seed.absorb(0.25)

        torch.testing.assert_close(seed(x, h), expected)


def test_causal_attention_shows_no_token_a_later_one() -> None:
    module, x, h = at_site("layer norm")
    changed = x.clone()
    changed[:, 4:] += 1.0
    moved = {}
    for causal in (1, 0):
        seed = stirred(grown("attention", module, x, h, causal=causal))
        moved[causal] = (seed(changed, h) - seed(x, h)).abs().amax(dim=(0, 2)) > 0

    assert moved[1].tolist() == [False] * 4 + [True] * 3
    assert moved[0].all()


@pytest.mark.parametrize(
    ("given", "reason", "said"),
    [
        ({"rank": 0.0}, pb.ReasonCode.REASON_OUT_OF_RANGE, "rank is 0; expected an integer in [1, 64]"),
        ({"rank": 65.0}, pb.ReasonCode.REASON_OUT_OF_RANGE, "rank is 65; expected an integer in [1, 64]"),
        ({"rank": 2.5}, pb.ReasonCode.REASON_OUT_OF_RANGE, "rank is 2.5; expected an integer in [1, 64]"),
        ({"rank": float("nan")}, pb.ReasonCode.REASON_OUT_OF_RANGE, "rank is nan; expected an integer in [1, 64]"),
        ({"rnk": 3.0}, pb.ReasonCode.REASON_UNKNOWN_PARAMETER, "no parameter 'rnk' (near: 'rank'); it has rank"),
        ({"width": 3.0}, pb.ReasonCode.REASON_UNKNOWN_PARAMETER, "no parameter 'width'; it has rank"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(given: dict[str, float], reason: int, said: str) -> None:
    with pytest.raises(RefusedError) as caught:
        BLUEPRINTS["lora"].resolve(given)

    assert caught.value.reason == reason
    assert said in caught.value.detail


def test_an_unknown_blueprint_is_refused_with_the_near_ones() -> None:
    with pytest.raises(RefusedError, match=r"'conv3x' \(near: 'conv3x3', 'conv1x1'\); blueprints: noop, norm"):
        find(BLUEPRINTS, "conv3x")


@pytest.mark.parametrize(
    ("site", "blueprint", "given", "said"),
    [
        ("linear", "conv3x3", {}, "a Linear (input [5, 8], output [5, 6]): the output has 2 dimensions"),
        ("linear on tokens", "se", {}, "(input [5, 7, 8], output [5, 7, 12]): the output has its channels last"),
        ("layer norm", "attention", {"heads": 3}, "3 heads do not divide the 8 features"),
        ("conv2d", "attention", {}, "output [2, 6, 4, 5]): the output is not [batch, tokens, features]"),
    ],
)
def test_a_misfit_is_explained_with_both_shapes(site: str, blueprint: str, given: dict[str, float], said: str) -> None:
    module, x, h = at_site(site)

    detail = BLUEPRINTS[blueprint].fits(module, x.shape, h.shape, given)

    assert detail is not None
    assert detail.startswith(f"blueprint {blueprint} does not fit a ")
    assert said in detail


def test_attention_refuses_a_site_whose_tokens_come_first() -> None:
    module = nn.MultiheadAttention(8, 2)

    detail = BLUEPRINTS["attention"].fits(module, (7, 5, 8), (7, 5, 8))

    assert detail is not None
    assert "batch_first=False" in detail
