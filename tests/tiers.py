"""What tests of aggregation share: one run's keys, both tiers on a real bus, and outboxes that stop at a bad moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from esper.bus.connect import Redis, ServerClock
from esper.bus.faults import LostError
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import key, region_key
from esper.errors import StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.narset.global_ import Global, met_of
from esper.narset.regional import Regional
from esper.narset.totals import Totals, decode
from esper.narset.zero_copy import readings
from esper.runtime.aggregator.loop import Aggregator, Pipeline, Target, opening
from esper.runtime.aggregator.lost_state import Counted
from tests.bus_kit import bodies, put

Clock = Callable[[], float]
FORMS = (pb.TelemetryFrame, pb.TelemetryPacket, pb.ColumnarFrame)


def standing_still() -> float:
    return 0.0


class PausedOutbox(Outbox):
    """Says when the first settlement is about to go out, and waits; notes what was refused."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.refused: list[StaleLeaseError] = []

    async def settle(self, settlement: Settlement) -> list[str]:
        self.reached.set()
        await self.go_on.wait()
        try:
            return await super().settle(settlement)
        except StaleLeaseError as error:
            self.refused.append(error)
            raise


class DyingOutbox(Outbox):
    """Dies after the target was written, before the sources are acknowledged."""

    async def settle(self, settlement: Settlement) -> list[str]:
        if settlement.acks and not settlement.writes:
            raise LostError("killed between two slots")
        return await super().settle(settlement)


@dataclass
class Tiers:
    """Both tiers of one run. Consumers are named by the test; each call is a new process of that name."""

    redis: Redis
    reader: Redis
    run_id: str
    master: MasterKeyring = field(default_factory=lambda: MasterKeyring.new(time.time_ns()))
    server_clock: ServerClock = field(default_factory=ServerClock)

    async def open(self) -> Tiers:
        await self.server_clock.look(self.redis)
        return self

    def region(self, region: str, name: str) -> str:
        return region_key(self.run_id, region, name)

    async def say(self, region: str, frames: Iterable[Message], source: str = "worker-0") -> None:
        """Each under a seal whose target is the region, which a packet alone needs and the others may have."""
        sealer = Sealer(self.master.derive(self.run_id, [Role.WORKER]), Role.WORKER, source)
        sealed = [sealer.seal(frame, target=region) for frame in frames]
        await put(self.redis, self.region(region, "telemetry"), *sealed)

    def inbox(self, stream: str, group: str, consumer: str, reclaim_after_ms: int | None) -> Inbox:
        pace = Pace(reclaim_after_ms=reclaim_after_ms, count=16, block_ms=20)
        return Inbox(self.reader, self.redis, stream, group, consumer, pace)

    def regional(
        self,
        region: str,
        consumer: str = "a",
        *,
        outbox: Outbox | None = None,
        reclaim_after_ms: int | None = None,
        clock: Clock = standing_still,
    ) -> Aggregator:
        keys = self.master.derive(self.run_id, [Role.REGIONAL])
        opener = Opener(keys, name=region, guard=None, accept={Domain.TELEMETRY}, readings=readings())
        sealer = Sealer(keys, Role.REGIONAL, consumer)
        tier = Regional(region)
        inbox = self.inbox(self.region(region, "telemetry"), "regional", consumer, reclaim_after_ms)
        return Aggregator(
            tier,
            Pipeline(opening(opener, self.server_clock, *FORMS), tier.on_opened, sealer.seal),
            [inbox],
            outbox or Outbox(self.redis),
            Target(
                self.region(region, "regional"),
                self.region(region, "windows"),
                Counted(key(self.run_id, "totals"), met_of(region)),
            ),
            clock,
        )

    def global_(
        self,
        regions: Sequence[str],
        consumer: str = "g",
        *,
        outbox: Outbox | None = None,
        reclaim_after_ms: int | None = None,
    ) -> Aggregator:
        keys = self.master.derive(self.run_id, [Role.GLOBAL])
        opener, sealer = Opener(keys, guard=None, accept={Domain.AGGREGATE}), Sealer(keys, Role.GLOBAL, consumer)
        tier = Global(regions)
        sources = [self.region(region, "regional") for region in regions]
        return Aggregator(
            tier,
            Pipeline(opening(opener, self.server_clock, pb.AggregatedTelemetry), tier.on_opened, sealer.seal),
            [self.inbox(source, "global", consumer, reclaim_after_ms) for source in sources],
            outbox or Outbox(self.redis),
            Target(key(self.run_id, "global"), key(self.run_id, "totals")),
            standing_still,
        )

    async def aggregates(self, stream: str) -> list[pb.AggregatedTelemetry]:
        opener = Opener(self.master.derive(self.run_id, [Role.OBSERVER]), guard=None, accept={Domain.AGGREGATE})
        opened = [
            opener.open(body, f"{self.server_clock.now_ms()}-0", self.server_clock.now_ms()).message
            for body in await bodies(self.redis, stream)
        ]
        return [message for message in opened if isinstance(message, pb.AggregatedTelemetry)]

    async def said_by(self, region: str) -> list[pb.AggregatedTelemetry]:
        return await self.aggregates(self.region(region, "regional"))

    async def said_globally(self) -> list[pb.AggregatedTelemetry]:
        return await self.aggregates(key(self.run_id, "global"))

    async def totals(self) -> Totals:
        return decode(await self.redis.hgetall(key(self.run_id, "totals")))  # type: ignore[arg-type]
