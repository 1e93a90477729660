"""Sites of every kind: layers, attention, blocks, tied weights, modules used twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.seed_kit import Op, equal
from tests.site_kit import Plot, alone

Made = tuple[nn.Module, Tensor]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.site = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.site(x, x, x)[0]
        return y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.site = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.site(x)[0]
        return y


def around(site: nn.Module, *then: nn.Module) -> nn.Module:
    host = nn.Sequential()
    for name, module in {"site": site, **{f"then{i}": each for i, each in enumerate(then)}}.items():
        host.add_module(name, module)
    return host


def block() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


KINDS: dict[str, Callable[[], Made]] = {
    "linear": lambda: (around(nn.Linear(8, 6), nn.ReLU(inplace=True)), torch.randn(4, 8)),
    "conv1d": lambda: (around(nn.Conv1d(3, 5, 3, padding=1)), torch.randn(4, 3, 9)),
    "conv2d": lambda: (around(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU()), torch.randn(4, 3, 6, 6)),
    "layer_norm": lambda: (around(nn.LayerNorm(8), nn.Linear(8, 2)), torch.randn(4, 5, 8)),
    "embedding": lambda: (around(nn.Embedding(7, 8), nn.Linear(8, 2)), torch.arange(20).reshape(4, 5) % 7),
    "attention": lambda: (Attention(), torch.randn(4, 5, 8)),
    "mlp_block": lambda: (around(block(), nn.Linear(8, 2)), torch.randn(4, 5, 8)),
    "recurrent": lambda: (Recurrent(), torch.randn(4, 5, 8)),
}


def plot(kind: str) -> Plot:
    torch.manual_seed(1)
    host, inputs = KINDS[kind]()
    return Plot(host, inputs, ("site",))


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_of_any_kind_takes_a_seed_and_trains_undisturbed(kind: str) -> None:
    one = plot(kind)
    one.train()
    one.start("site")

    one.train(6)

    assert equal(one.gradients, alone(one, plot(kind).host, 7).gradients)
    assert equal(one.host.state_dict(), alone(one, plot(kind).host, 7).host.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_of_any_kind_loads_what_was_trained_beside_seeds(kind: str) -> None:
    one = plot(kind)
    one.train()
    one.start("site")
    one.blend()
    one.do(Op.SEED_OP_CULL)
    bare = plot(kind).host

    bare.load_state_dict(one.host.state_dict(), strict=True)

    assert torch.equal(bare.eval()(one.inputs), one.host.eval()(one.inputs))


class Twice(nn.Module):
    """Its site runs twice in a forward, the second time on what the first one gave."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.site = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.site(torch.tanh(self.site(x))))
        return y


def test_a_module_used_twice_has_its_seed_in_both_calls() -> None:
    one = Plot(Twice(), torch.randn(4, 6), ("site",))
    one.train()
    one.start("site")
    one.blend()
    seed = one.executor.seeds["s0"].module
    bare = Twice()
    assert seed is not None

    first = bare.site(one.inputs)
    inner = torch.tanh(first + seed(one.inputs, first))
    second = bare.site(inner)
    expected = bare.head(second + seed(inner, second))

    torch.testing.assert_close(one.host(one.inputs), expected)


def test_the_window_counts_steps_where_a_module_is_used_twice() -> None:
    one = Plot(Twice(), torch.randn(4, 6), ("site",))
    one.train()
    one.start("site")

    one.train(5)

    meter = one.executor.seeds["s0"].meter
    assert (meter.fits.total, meter.sizes.total, meter.ratios.total) == (5, 5, 5)
    assert float(meter.num_batches) == 10
    assert equal(one.gradients, alone(one, Twice(), 6).gradients)


def test_the_seed_learns_from_both_calls() -> None:
    """Its gradient is the sum of what either call alone would give it."""
    one = Plot(Twice(), torch.randn(4, 6), ("site",))
    one.train()
    one.start("site")
    one.blend()
    slot, seed = one.executor._slots["site"], one.executor.seeds["s0"]
    assert seed.module is not None
    calls = [(torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6)) for _ in range(2)]

    apart = []
    for x, h, g in calls:
        seed.module.zero_grad()
        torch.autograd.backward(joined(slot.joined(x, h)), g)
        apart.append([p.grad.clone() for _, p in seed.trainable() if p.grad is not None])
    seed.module.zero_grad()
    torch.autograd.backward([joined(slot.joined(x, h)) for x, h, _ in calls], [g for _, _, g in calls])

    for (_, parameter), first, second in zip(seed.trainable(), *apart, strict=True):
        torch.testing.assert_close(parameter.grad, first + second)


def joined(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


class Tied(nn.Module):
    """A tiny language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.embed(x)))
        return y


@pytest.mark.parametrize("site", ["embed", "head"])
def test_weights_tied_to_one_another_stay_tied_through_a_fossil(site: str) -> None:
    one = Plot(Tied(), torch.arange(12).reshape(3, 4) % 7, (site,), lr=1e-2)
    one.train()
    one.start(site)
    one.blend()
    one.ripen()
    host, before = one.host, one.host(one.inputs).detach()

    one.do(Op.SEED_OP_FOSSILIZE)

    assert isinstance(host, Tied) and host.head.weight is host.embed.weight
    torch.testing.assert_close(host(one.inputs), before)
