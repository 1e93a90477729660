"""A seed joins whatever kind of output its site gives."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.slots.outputs import joinable, with_tensor
from tests.seed_kit import equal
from tests.site_kit import Plot, alone


class Named(NamedTuple):
    mask: Tensor
    hidden: Tensor


@dataclass
class Plain:
    hidden: Tensor
    note: str = "kept"


@dataclass(frozen=True)
class Sealed:
    hidden: Tensor
    double: int = field(init=False, default=2)


@dataclass
class Output(OrderedDict[str, Any]):
    """A dataclass that is a mapping too, as the outputs of transformers are."""

    loss: Tensor
    hidden: Tensor

    def __post_init__(self) -> None:
        self.update(loss=self.loss, hidden=self.hidden)


MASK = torch.ones(3, dtype=torch.bool)
KINDS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda h: h,
    "tuple": lambda h: (h, MASK),
    "list": lambda h: [MASK, h],
    "named_tuple": lambda h: Named(MASK, h),
    "dict": lambda h: {"mask": MASK, 7: h},
    "ordered": lambda h: OrderedDict(mask=MASK, hidden=h),
    "default": lambda h: defaultdict(list, hidden=h),
    "user_dict": lambda h: UserDict({"hidden": h}),
    "dataclass": Plain,
    "frozen": Sealed,
    "model_output": lambda h: Output(h.sum(), h),
    "nested": lambda h: (None, {"states": [(MASK, h), h + 1]}, "rest"),
}


def hidden(output: Any) -> Tensor:
    found = joinable(output)
    assert found is not None
    return found[1]


class Block(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linear, self.kind = nn.Linear(4, 4), kind

    def forward(self, x: Tensor) -> Any:
        return KINDS[self.kind](self.linear(x))


class Host(nn.Module):
    """Gives its block's output on as it is, beside the value that it makes of it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.block = Block(kind)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        output = self.block(x)
        return self.head(hidden(output)), output


def plot(kind: str) -> Plot:
    torch.manual_seed(1)
    return Plot(Host(kind), torch.randn(5, 4), ("block",))


@pytest.mark.parametrize("kind", KINDS)
def test_the_host_is_undisturbed_while_a_seed_trains_on_any_output(kind: str) -> None:
    one = plot(kind)
    one.train()
    one.start("block")

    one.train(5)

    assert equal(one.gradients, alone(one, plot(kind).host).gradients)
    assert one.executor.seeds["s0"].meter.fits.total == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_blended_seed_changes_one_tensor_of_the_output_and_nothing_else(kind: str) -> None:
    one = plot(kind)
    one.train()
    one.start("block")
    one.blend()
    bare = plot(kind).host(one.inputs)[1]
    seed = one.executor.seeds["s0"].module
    assert seed is not None

    output = one.host(one.inputs)[1]

    assert type(output) is type(bare)
    torch.testing.assert_close(hidden(output), hidden(bare) + seed(one.inputs, hidden(bare)))
    whole, path = joinable(bare), joinable(output)
    assert whole is not None and path is not None and whole[0] == path[0]


def test_only_what_is_on_the_path_is_made_anew() -> None:
    h = torch.zeros(2, 3)
    output: tuple[Any, ...] = (None, ["text", {"none": None}], {"loss": torch.ones(()), "hidden": h})

    changed = with_tensor(output, (2, "hidden"), h + 1)

    assert joinable(output) == ((2, "hidden"), h)
    assert changed[1] is output[1] and changed[2]["loss"] is output[2]["loss"]
    assert torch.equal(changed[2]["hidden"], h + 1) and torch.equal(output[2]["hidden"], h)


@pytest.mark.parametrize("output", [None, "text", 3.0, torch.ones(2, dtype=torch.int64), torch.ones(()), (), {"a": ()}])
def test_an_output_without_activations_is_left_alone(output: object) -> None:
    class Site(nn.Module):
        def forward(self, x: Tensor) -> object:
            self.seen = x
            return output

    site = Site()
    one = Plot(nn.Sequential(site), torch.ones(2, 2), ("0",))
    one.executor.begin_step(1, 0)

    assert one.host(one.inputs) is output
    assert one.executor.bypassed() == []
