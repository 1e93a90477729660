"""A user's hooks hang in the order in which the user hung them, and the slot among them where it was attached."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from torch import nn

from esper.kasmina.executor import Executor
from esper.kasmina.slots.sites import absent
from esper.kasmina.slots.slot import Hook
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, Bench, Op, new_host

SLOT = "slot"


class Named:
    """A hook of the user's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: nn.Module, given: Any, output: Any) -> None:
        return None


def hang(modules: tuple[nn.Module, ...], name: str, *, prepend: bool) -> None:
    for module in modules:
        module.register_forward_hook(Named(name), prepend=prepend)


def order(module: nn.Module) -> list[str]:
    hooks = module._forward_hooks.values()
    return [SLOT if isinstance(hook, Hook) else hook.name for hook in hooks if isinstance(hook, Hook | Named)]


def grown(bench: Bench) -> list[str]:
    """With a seed at the body."""
    assert bench.germinate().status == APPLIED
    return order(bench.host.body)


@pytest.mark.parametrize(("second", "awake", "third", "fourth"), list(product((False, True), repeat=4)))
def test_the_order_is_that_of_a_slot_that_never_rested(second: bool, awake: bool, third: bool, fourth: bool) -> None:
    host, bare = new_host(), nn.Identity()  # the bare module has a plain hook in the slot's place
    both = host.body, bare
    hang(both, "first", prepend=False)
    hang(both, "second", prepend=second)
    bench = Bench(host)
    bare.register_forward_hook(Named(SLOT))
    hang(both, "awake", prepend=awake)
    bench.train(2)
    rested = order(host.body)
    hang(both, "third", prepend=third)
    hang(both, "fourth", prepend=fourth)

    met = grown(bench)

    assert SLOT not in rested
    assert met == order(bare)


def test_of_two_that_were_put_to_the_front_one_after_the_other_the_first_is_known_to_be_before_the_slot() -> None:
    bench = Bench()
    bench.train(2)
    for name in ("first", "second"):
        hang((bench.host.body,), name, prepend=True)

    met = grown(bench)

    assert met == ["second", SLOT, "first"]  # nothing tells how the first was hung: it counts as hung behind


def test_a_slot_that_was_absent_for_a_measurement_keeps_its_place_once_it_has_rested() -> None:
    bench = Bench()
    hang((bench.host.body,), "behind", prepend=False)
    bench.train(2)
    before = grown(bench)
    executor: Executor = bench.executor
    with absent(executor._slots["body"]):
        during = order(bench.host.body)
    executor.apply(cull(), bench.step + 1, 0)
    bench.train(2)
    rested = order(bench.host.body)

    executor._slots["body"].wake()

    assert (before, during, rested) == ([SLOT, "behind"], ["behind"], ["behind"])
    assert order(bench.host.body) == [SLOT, "behind"]


def cull() -> pb.SeedCommand:
    return pb.SeedCommand(seed_id="s0", operation=Op.SEED_OP_CULL)
