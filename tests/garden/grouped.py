"""A script that gives its optimizer names, and further groups of parameters with rates of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from tests.garden.manners import Manner

Given = Sequence[Any]
"""Parameters, pairs with their names, or groups of either."""


def grouped(host: nn.Module, trained: Sequence[nn.Parameter], manner: Manner) -> Given:
    """What the optimizer is built with. A group that is left without a parameter is not made."""
    names = {id(each): name for name, each in host.named_parameters()}
    given: Given = [(names[id(each)], each) for each in trained] if manner.named else trained
    if not manner.groups:
        return given
    own: list[dict[str, Any]] = [{}, *({"lr": rate} for rate in manner.groups)]
    parts = [part for at in range(len(own)) if (part := given[at :: len(own)])]
    return [{"params": part, "name": f"part {at}", **own[at]} for at, part in enumerate(parts)]
