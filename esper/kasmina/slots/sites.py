"""Finds the modules that sites name, and gives each the places that seeds can take there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.slots.naming import modules_at
from esper.kasmina.slots.slot import Hook, Slot

PLACE = "#"  # blocks.0#2 is the second place at blocks.0; the first bears the site's own name


def slots_at(host: nn.Module, sites: Sequence[str], config: KasminaConfig) -> dict[str, Slot]:
    """A slot for each place, in the order in which a site's output passes them: a later one sees the earlier ones'."""
    slots: dict[str, Slot] = {}
    for name, module in modules_at(host, sites).items():
        for place in range(1, config.seeds_per_site + 1):
            named = name if place == 1 else f"{name}{PLACE}{place}"
            slots[named] = Slot(named, module, config)
            slots[named].norm_cache = slots[name].norm_cache
    return slots


def neighbours(slots: Mapping[str, Slot], slot: Slot) -> list[Slot]:
    """Every slot of the same module, this one too, in the order in which the output passes them."""
    return [each for each in slots.values() if each.module is slot.module]


@contextmanager
def absent(slot: Slot) -> Iterator[None]:
    """Without the slot's hook, which comes back to its place among the module's hooks, under the key that it had."""
    hooks = slot.module._forward_hooks
    own = next((key for key, hook in hooks.items() if isinstance(hook, Hook) and hook.slot is slot), None)
    if own is None:
        yield
        return
    order = list(hooks)
    hook = hooks.pop(own)
    try:
        yield
    finally:
        hooks[own] = hook
        for key in order[order.index(own) + 1 :]:
            hooks[key] = hooks.pop(key)


def put_in_order(slots: Sequence[Slot]) -> None:
    """Hook them anew, behind everything else that hangs on their module."""
    for slot in slots:
        slot.detach()
        slot.attach()
