"""Actors with one fault each, of the kind that such systems have: the simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esper.bus.group.consumer import Consumer
from esper.bus.group.delivery import Delivery
from esper.bus.group.settlement import Settlement
from esper.bus.protocol import Ask, Steps
from esper.errors import StaleLeaseError
from esper.leyline.kinds import Domain
from esper.leyline.seal import Opened, Opener
from esper.runtime.serving.delivery_handler import Repeats
from tests.simulation.hands import Hands
from tests.simulation.keys import COORDINATOR
from tests.simulation.rank import Rank
from tests.simulation.record import JOBS
from tests.simulation.run import Cast
from tests.simulation.worker import GROUP, HandlingWorker, Worker
from tests.simulation.world import Life


class AckBeforeEffect(Worker):
    """Acknowledges in one call, writes in the next."""

    def commit(self, hands: Hands, batch: Sequence[Delivery], settlement: Settlement) -> Steps[None]:
        yield from hands.settle(Settlement(acks=settlement.acks))
        settlement.acks = {}
        yield from hands.settle(settlement)


class EffectBeforeAck(Worker):
    """Writes in one call, acknowledges in the next, and knows nothing of what it wrote before."""

    guarded = False

    def commit(self, hands: Hands, batch: Sequence[Delivery], settlement: Settlement) -> Steps[None]:
        acks, settlement.acks = settlement.acks, {}
        yield from hands.settle(settlement)
        yield from hands.settle(Settlement(acks=acks))


class NothingPersisted(Worker):
    """Keeps its replay windows in memory only."""

    def answered(self, hands: Hands, batch: Sequence[Delivery], repeats: Repeats) -> Settlement:
        settlement = super().answered(hands, batch, repeats)
        settlement.puts.clear()
        settlement.expectations.clear()
        return settlement


class NothingExpected(Worker):
    """Writes its windows without looking whether another worker has moved them."""

    def answered(self, hands: Hands, batch: Sequence[Delivery], repeats: Repeats) -> Settlement:
        settlement = super().answered(hands, batch, repeats)
        settlement.expectations.clear()
        return settlement


class PlainTransaction(HandlingWorker):
    """Writes and acknowledges together, as MULTI does: without asking whether the entries are still its own."""

    once = False

    def commit(self, hands: Hands, batch: Sequence[Delivery], settlement: Settlement) -> Steps[None]:
        acks, settlement.acks = settlement.acks, {}
        yield from hands.settle(settlement)
        for (stream, group, _), ids in acks.items():
            yield from hands.tried(Ask(("XACK", stream, group, *ids)))


class NoDedupe(HandlingWorker):
    """Takes an entry for a message: two entries of one message are two effects."""

    once = False


class AnsweredAnyway(Worker):
    """Takes a refused settlement for a settled one."""

    def serve(self, hands: Hands, batch: Sequence[Delivery]) -> Steps[bool]:
        if batch:
            try:
                yield from hands.settle(self.answered(hands, batch, set()))
            except StaleLeaseError:
                yield from self.load(hands)
        return True


class _AtTheEnd(Consumer):
    def open(self) -> Steps[bool]:
        stream, group, _ = self.source
        try:
            yield from super().open()
        finally:
            self._opened = True
        yield Ask(("XGROUP", "SETID", stream, group, "$"))
        return True


class _NeverReclaims(Consumer):
    def _reclaim(self, min_idle_ms: int) -> Steps[None]:
        self._reclaim_at_s = self.surroundings.clock() + 1.0
        yield from ()


class _InVain(Consumer):
    def _reclaim(self, min_idle_ms: int) -> Steps[None]:
        yield from super()._reclaim(10**9)


class GroupAtTheEnd(Worker):
    """Moves the group to the newest entry when it starts."""

    consumer_type = _AtTheEnd


class NeverReclaims(Worker):
    """Leaves what dead workers held."""

    consumer_type = _NeverReclaims


class ReclaimsInVain(Worker):
    """Waits for entries to be idle for longer than they ever are."""

    consumer_type = _InVain


class NeverGivesUp(Worker):
    """Has no limit of attempts."""

    def take(self, hands: Hands, settlement: Settlement, delivery: Delivery) -> None:
        super().take(hands, settlement, delivery._replace(attempts=1))


class GivesUpEarly(Worker):
    """Sets aside at the fourth delivery."""

    def take(self, hands: Hands, settlement: Settlement, delivery: Delivery) -> None:
        super().take(hands, settlement, delivery._replace(attempts=delivery.attempts + 2))


class BelievesAnything(Worker):
    """Reads what a message says without checking its seal."""

    def hands(self, life: Life) -> Hands:
        hands = super().hands(life)
        hands.opener = _Blind(COORDINATOR, guard=hands.guard, accept={Domain.HEARTBEAT})
        return hands


class _Blind(Opener):
    def _check_seal(self, *_: object) -> None:
        return None


class DropsRefused(Worker):
    """Acknowledges what it can't settle, without a word."""

    def serve(self, hands: Hands, batch: Sequence[Delivery]) -> Steps[bool]:
        for delivery in batch:
            if delivery.attempts > 1:
                yield from hands.tried(Ask(("XACK", JOBS, GROUP, delivery.entry_id)))
        return (yield from super().serve(hands, [each for each in batch if each.attempts == 1]))


@dataclass(slots=True)
class ForgetfulRank(Rank):
    """Does not write down what it has seen."""

    def live(self, life: Life) -> Steps[None]:
        self.seen.clear()
        yield from Rank.live(self, life)


@dataclass(slots=True)
class OpenRank(Rank):
    """Carries out what it has carried out before."""

    def is_new(self, opened: Opened) -> bool:
        return True


def _both(worker: type[Worker]) -> Cast:
    return Cast(worker, worker)


PLANTED: dict[str, Cast] = {
    **{
        kind.__name__: _both(kind)
        for kind in (
            AckBeforeEffect,
            EffectBeforeAck,
            NothingPersisted,
            NothingExpected,
            PlainTransaction,
            NoDedupe,
            GroupAtTheEnd,
            NeverReclaims,
            ReclaimsInVain,
            NeverGivesUp,
            GivesUpEarly,
            BelievesAnything,
            DropsRefused,
            AnsweredAnyway,
        )
    },
    "ForgetfulRank": Cast(rank=ForgetfulRank),
    "OpenRank": Cast(rank=OpenRank),
}
