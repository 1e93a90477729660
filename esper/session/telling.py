"""What a session tells of itself: heartbeats, receipts, pruning and breakers, in messages, packets and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from esper.kasmina.germination.prefetch import Prefetched
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import short
from esper.session import records
from esper.session.exchange import Exchange
from esper.session.rank_status import RankStatus
from esper.session.teacher_registration import Said

log = structlog.get_logger()

INFO, WARNING = pb.TelemetryLevel.TELEMETRY_INFO, pb.TelemetryLevel.TELEMETRY_WARNING


@dataclass(frozen=True, slots=True)
class Telling:
    """Turns what happened into messages, events and lines. Decides nothing; positions are given."""

    status: RankStatus
    exchange: Exchange

    def beat(self, step: int, epoch: int, *, barrier_due: bool = False, busy: int = 0) -> None:
        heartbeat = self.status.heartbeat(step, epoch, barrier_due=barrier_due, busy=busy)
        self.exchange.say(pb.ToRuntime(heartbeat=heartbeat))

    def answer(self, said: Said) -> None:
        for answer in said.answers:
            self.exchange.say(pb.ToRuntime(applied=answer))
        self.receipts(said.receipts)

    def receipts(self, receipts: Sequence[pb.CommandReceipt]) -> None:
        """In the log, and as an event of the next packet: a command's completion shows in every tier."""
        for receipt in receipts:
            done = receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED
            event = "command.applied" if done else "command.failed"
            self.exchange.rows.note(INFO if done else WARNING, event, command=receipt.command_id, detail=receipt.detail)
            tell: Callable[..., Any] = log.info if done else log.warning
            facts = {"stage": short(receipt.stage) if receipt.stage else "", "detail": receipt.detail}
            told = {name: fact for name, fact in facts.items() if fact}
            tell(event, command=receipt.command_id, step=receipt.step, **told)

    def prefetched(self, made: Prefetched, step: int) -> None:
        event = "kernel.not_prefetched" if made.detail else "kernel.prefetched"
        facts = {"site": made.wanted.site, "blueprint": made.wanted.blueprint_id, "took_ms": f"{made.took_ms:.3g}"}
        facts |= {"detail": made.detail} if made.detail else {}
        self.exchange.rows.note(WARNING if made.detail else INFO, event, **facts)
        log.info(event, step=step, **facts)

    def emergency(self, reason: str, step: int) -> None:
        """A breaker opened: told at once and in every tier."""
        self.exchange.rows.note(pb.TelemetryLevel.TELEMETRY_CRITICAL, "breaker.opened", reason=reason)
        log.error("breaker.opened", step=step, reason=reason)

    def checkpoint_failed(self, step: int, why: str) -> None:
        """Whoever made it has logged it."""
        level = pb.TelemetryLevel.TELEMETRY_ERROR
        self.exchange.rows.note(level, "checkpoint.failed", step=str(step), why=why)

    def displaced(self, site: str, detail: str, step: int) -> None:
        """The script has put another module in the place of a site's."""
        self.exchange.rows.note(WARNING, "site.displaced", site=site, detail=detail)
        log.warning("site.displaced", step=step, site=site, detail=detail)

    def outcomes(self, round_: int, outcomes: Sequence[pb.CommandReceipt]) -> None:
        """What became of the requests of a round's commit, on the run's record, by rank 0: every rank has the same."""
        if outcomes and self.status.identity.rank == 0:
            self.exchange.put_on_record(pb.ToRuntime(record=records.judged(self.status, round_, outcomes)))

    def importance(self, requests: Sequence[pb.StructuralPruningRequest], step: int, epoch: int) -> None:
        """In a heartbeat each, from rank 0: every rank has the same."""
        for request in requests if self.status.identity.rank == 0 else ():
            heartbeat = self.status.heartbeat(step, epoch)
            heartbeat.pruning.CopyFrom(request)
            self.exchange.say(pb.ToRuntime(heartbeat=heartbeat))

    def news_of(self, pruning: Pruning, step: int, epoch: int) -> None:
        """What it has to tell by now, once."""
        self.importance(pruning.take_exported(), step, epoch)
        for event in pruning.take_events():
            self.exchange.rows.note(WARNING, event.name, **event.attributes)
            log.warning(event.name, **event.attributes)
