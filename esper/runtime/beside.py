"""The loop of the runtime beside a trainer: Redis on one side, the trainer's two lanes on the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from google.protobuf.message import Message

from esper.bus import names
from esper.bus.delivery import Delivery
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.bus.publisher import Publisher
from esper.bus.settlement import Settlement
from esper.errors import BusError, EsperError, RefusedError, StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener, Sealer
from esper.runtime.lanes import Lanes, messages
from esper.runtime.orders import Orders
from esper.runtime.packets import Origin, frames, signals

log = structlog.get_logger()

_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass
class Beside:
    """Carries commands and decisions to one trainer, and its votes, receipts and measurements to Redis.

    Holds no training state: killed at any moment, its successor reads its pending entries again and the trainer
    answers repeats from memory.
    """

    run_id: str
    origin: Origin
    lanes: Lanes
    logs: dict[str, Inbox]  # "commands", "optimizer", "decisions"
    openers: dict[str, Opener]
    guards: dict[str, ReplayGuard]
    outbox: Outbox
    publisher: Publisher
    sealer: Sealer
    now_ms: Callable[[], int]
    orders: Orders = field(default_factory=Orders)

    async def serve(self, stopping: asyncio.Event) -> None:
        """Run until the trainer hangs up or `stopping` is set; raises the first error of any part."""
        self.lanes.tell(pb.ToTrainer(ready=pb.RuntimeReady(run_id=self.run_id)))
        readers = [asyncio.ensure_future(self._follow_log(name)) for name in self.logs]
        others: list[asyncio.Future[Any]] = [asyncio.gather(self._hear_trainer(), self._carry_rows())]
        others.append(asyncio.ensure_future(stopping.wait()))
        try:
            done, _ = await asyncio.wait([*readers, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for inbox in self.logs.values():
                inbox.stop()
            await _cancel(others)
            await asyncio.wait(readers)  # each leaves its blocking read by itself: a cancelled one could strand entries

    # -- from Redis to the trainer -----------------------------------------------------------------------------------

    async def _follow_log(self, name: str) -> None:
        inbox = self.logs[name]
        await inbox.open()
        async for batch in inbox.batches():
            settlement = Settlement()
            for delivery in batch:
                for done in self._read(name, delivery):
                    settlement.ack(done)
            await self._settle(settlement)

    def _read(self, name: str, delivery: Delivery) -> list[Delivery]:
        """Open one entry and tell the trainer what it needs to hear; return what is settled by that."""
        try:
            opened = self.openers[name].open(delivery.body, delivery.entry_id, self.now_ms())
        except RefusedError as error:
            return self._refuse(name, delivery, error)
        if name != "decisions":
            return self._tell(self.orders.on_command(name, opened, delivery), [])
        return self._tell(*self._decide(opened, delivery))

    def _decide(self, opened: Opened, delivery: Delivery) -> tuple[list[pb.ToTrainer], list[Delivery]]:
        match opened.message:
            case pb.BarrierProposal() as proposal:
                return self.orders.on_proposal(proposal, delivery)
            case pb.BarrierCommit() as commit:
                return self.orders.on_commit(commit, delivery)
            case pb.BarrierAbort() as abort:
                return self.orders.on_abort(abort, delivery)
            case _:
                return [], [delivery]

    def _refuse(self, name: str, delivery: Delivery, error: RefusedError) -> list[Delivery]:
        log.warning("message.refused", stream=name, entry=delivery.entry_id, detail=error.detail)
        if name != "decisions":
            self.orders.on_refused(name, delivery, error.detail)
        return [delivery]  # the coordinator dead-letters it, once for all

    def _tell(self, messages: list[pb.ToTrainer], settled: list[Delivery]) -> list[Delivery]:
        for message in messages:
            self.lanes.tell(message)
        return settled

    # -- from the trainer to Redis -----------------------------------------------------------------------------------

    async def _hear_trainer(self) -> None:
        async for message in messages(self.lanes.control):
            match message.WhichOneof("message"):
                case "heartbeat":
                    await self._publish("heartbeats", message.heartbeat, keep=False)
                case "vote":
                    await self._publish("votes", message.vote)
                case "applied":
                    await self._settle_round(message.applied)
                case "farewell":
                    await self._publish("heartbeats", message.farewell)
                    self.lanes.tell(pb.ToTrainer(report_stored=pb.ReportStored()))
                    await self.lanes.to_trainer.drain()

    async def _settle_round(self, applied: pb.RoundApplied) -> None:
        """Receipts, windows and acks of one round, in one call."""
        settled = self.orders.on_applied(applied)
        if not settled:
            return  # a repeat; its first telling was settled
        settlement = Settlement()
        for delivery in settled:
            settlement.ack(delivery)
        for receipt in applied.receipts:
            settlement.write(names.key(self.run_id, "receipts"), self.sealer.seal(receipt))
        await self._settle(settlement)

    async def _carry_rows(self) -> None:
        telemetry = names.region_key(self.run_id, self.origin.region, "telemetry")
        async for message in messages(self.lanes.rows):
            rows = message.rows
            for frame in frames(rows, self.origin):
                await self._add(telemetry, self.sealer.seal(frame))
                stored = pb.RowsStored(through_sequence=frame.packets[-1].sequence)
                self.lanes.tell(pb.ToTrainer(rows_stored=stored))
            for signal in signals(rows, self.origin):
                log.error("training.critical", reason=signal.reason, step=signal.global_step, **signal.attributes)
                await self._publish("emergency", signal)

    async def _publish(self, stream: str, message: Message, *, keep: bool = True) -> None:
        sealed = self.sealer.seal(message)
        if keep:
            await self._add(names.key(self.run_id, stream), sealed)
            return
        try:
            await self.publisher.add(names.key(self.run_id, stream), sealed)
        except BusError as error:
            log.warning("heartbeat.lost", reason=str(error))

    async def _add(self, key: str, sealed: bytes) -> None:
        """Add until Redis has it: the same bytes each time, so that a repeat is recognised by its sequence."""
        for attempt in range(1 << 30):
            try:
                await self.publisher.add(key, sealed)
                return
            except BusError as error:
                if attempt == 0:
                    log.warning("redis.lost", reason=str(error))
                await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])

    async def _settle(self, settlement: Settlement) -> None:
        if settlement.empty:
            return
        for name, guard in self.guards.items():
            settlement.put(windows_key(self.run_id, self.origin.source, name), guard.changed())
        try:
            await self.outbox.settle(settlement)
        except StaleLeaseError as error:
            log.warning("settlement.repeated", reason=str(error))


async def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, EsperError):
            await task


def windows_key(run_id: str, worker: str, log_name: str) -> str:
    """Hash of what a worker has seen of one log, kept with its acknowledgements."""
    return names.key(run_id, f"windows:{worker}:{log_name}")
