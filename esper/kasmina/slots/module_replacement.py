"""Notices where a script has put another module in the place of a site's."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from torch import nn

from esper.kasmina.slots.sites import PLACE
from esper.kasmina.slots.slot import Slot
from esper.leyline import contracts as pb


class ReplacedModules:
    """Which slots hang on a module that the model no longer has: what a seed does there reaches nobody."""

    def __init__(self, host: nn.Module, slots: Collection[Slot]) -> None:
        self._host, self._slots, self._known = host, slots, set[str]()
        exact = {id(module): path for path, module in host.named_modules()}
        self._paths = {slot.name: exact.get(id(slot.module), slot.name) for slot in slots}

    def look(self) -> list[Slot]:
        """Those that have become so since the last look. The seeds of all ask to be culled: a rollback or a reset takes
        back what one has asked for, and does not put the module back."""
        now = [slot for slot in self._slots if not is_part(self._host, slot, self._paths[slot.name])]
        found = [slot for slot in now if slot.name not in self._known]
        self._known = {slot.name for slot in now}
        for slot in now:
            if slot.seed is not None:
                slot.seed.complain(pb.ReasonCode.REASON_UNKNOWN_SITE, detail_of(slot))
        return found


def is_part(host: nn.Module, slot: Slot, path: str) -> bool:
    """At this path, or anywhere else: wrappers make paths longer."""
    try:
        there = attrgetter(path)(host)
    except AttributeError:  # nothing has that name, which need not mean much
        there = None
    return there is slot.module or any(each is slot.module for each in host.modules())


def misfit_of(host: nn.Module, slot: Slot) -> str:
    """Why nothing can germinate there; "" where the site is a part of the model."""
    return "" if is_part(host, slot, slot.name.partition(PLACE)[0]) else detail_of(slot)


def detail_of(slot: Slot) -> str:
    return f"the module that {slot.name!r} was at attach() is no part of the model any more; close() and attach() anew"
