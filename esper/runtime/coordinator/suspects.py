"""Which of the commands that wait count as tried: those of which a coordinator could just die, and no others.

A command may wait through any number of coordinators, each of which is handed it anew. One that kills them does so
while it is answered, or while the vote is that has it judged: the last one awaited. Only a death in there counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.runtime.coordinator.rule import Awaiting

Entry: TypeAlias = tuple[str, str]


class Suspects:
    """Commands in hand that were handed to an earlier coordinator too. Nobody else reads by these groups."""

    def __init__(self, inboxes: Mapping[str, Inbox]) -> None:
        self._inboxes = {inbox.source.stream: inbox for inbox in inboxes.values()}
        self._acquitted: dict[Entry, Delivery] = {}
        self._charged: dict[Entry, Delivery] = {}
        for inbox in inboxes.values():
            inbox.try_apart()

    async def begin(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """What may be answered of these. One that came alone counts as tried from now on, if it is still ours."""
        return [each for each in deliveries if not each.alone or each.spent or await self._begin(each)]

    async def _begin(self, delivery: Delivery) -> bool:
        return await self._inboxes[delivery.stream].begin(delivery)

    async def charge(self, barrier: Awaiting | None, num_votes: int) -> None:
        """Before so many votes are answered: if they may decide the round, what was acquitted counts as tried again."""
        if not (self._acquitted and barrier is not None and 0 < len(barrier.missing) <= num_votes):
            return
        for delivery in self._acquitted.values():
            await self._begin(delivery)
        self._charged, self._acquitted = self._acquitted, {}

    async def acquit(self, answered: Iterable[Delivery], held: Collection[Delivery]) -> None:
        """These were answered, and this process lives: that try does not count, though it dies before it settles."""
        again = {entry_of(each): each for each in answered if each.attempts > 1 and not each.spent}
        tried = again | self._charged
        self._charged = {}
        if not (tried or self._acquitted):
            return
        in_hand = {entry_of(delivery) for delivery in held}
        self._acquitted = {at: each for at, each in (self._acquitted | tried).items() if at in in_hand}
        by_stream: defaultdict[str, list[str]] = defaultdict(list)
        for stream, entry_id in tried:
            by_stream[stream].append(entry_id)
        for stream, entry_ids in by_stream.items():
            await self._inboxes[stream].acquit(entry_ids)


def entry_of(delivery: Delivery) -> Entry:
    """Where it lies."""
    return delivery.stream, delivery.entry_id
