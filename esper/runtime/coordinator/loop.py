"""The loop of the barrier coordinator: votes, heartbeats and commands in; decisions, receipts and acks out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import structlog

from esper.bus import names, tail
from esper.bus.connect import ServerClock
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement, reject_spent
from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener, Sealer
from esper.leyline.succession import MOST, Succession, in_force
from esper.runtime.coordinator.figures import RoundFigures
from esper.runtime.coordinator.group_cleanup import GroupCleanup
from esper.runtime.coordinator.lease import LEASE_S, RENEWALS
from esper.runtime.coordinator.lines import tell
from esper.runtime.coordinator.lookback import newest_said
from esper.runtime.coordinator.rule import Coordinates, Entry, Outcome
from esper.runtime.coordinator.suspects import Suspects
from esper.runtime.ending import end, raise_first
from esper.runtime.quitting import unless_silent
from esper.runtime.serving.arrivals import Arrivals
from esper.runtime.serving.missing import Missing
from esper.runtime.serving.refusals import Refusals
from esper.runtime.serving.windows import Found, Windows
from esper.runtime.timekeeping import kept_right

GROUP = "coordinator"
LOGS: Mapping[str, Domain] = {
    "votes": Domain.VOTE,
    "heartbeats": Domain.HEARTBEAT,
    "commands": Domain.COMMAND,
    "optimizer": Domain.OPTIMIZER,
}
COMMANDS = ("commands", "optimizer")
ONLY_VOTES = {"votes"}
TICK_S = 0.1
DEAF_S = 2.0
"""Between two steps, or two answers to a read, which come every half second; a rank is given up after five."""
NUM_DECISIONS = 512
"""Read at a start: more than enough to hold the newest proposal and the decision before it."""
FORGET_EVERY_NS = 60_000_000_000
FORGET_AFTER_MS = 300_000

log = structlog.get_logger()


@dataclass
class Seals:
    """How one coordinator opens each stream that it reads, and its own decisions, and seals what it writes."""

    openers: Mapping[str, Opener]
    guards: Mapping[str, ReplayGuard]
    decisions: Opener
    sealer: Sealer


@dataclass
class CoordinatorLoop:
    """Settles what the rule decides, one atomic call per step. A refused settlement ends the process: another one has
    taken over, and what this one believes of the open round is void."""

    run_id: str
    rule: Coordinates
    inboxes: Mapping[str, Inbox]
    seals: Seals
    outbox: Outbox
    clock: ServerClock
    lease_s: float = LEASE_S
    refusals: Refusals = field(default_factory=Refusals)
    missing: Missing = field(default_factory=Missing)
    figures: RoundFigures = field(default_factory=RoundFigures)
    _held: dict[Entry, Delivery] = field(default_factory=dict)
    _logs: dict[str, str] = field(default_factory=dict)
    _token: int = 0
    _renew_at_s: float = 0.0
    _tick_at_s: float = 0.0
    _forgot_ns: int = 0
    _stepped_at_s: float = 0.0
    _offset_ms: int = 0
    _arrivals: Arrivals = field(default_factory=Arrivals)
    _is_ending: bool = False
    _breaks: tuple[int, int] = (0, 0)
    _is_in_doubt: bool = False  # whether what comes with a step may have been read before Redis lost it

    def __post_init__(self) -> None:
        self.windows = Windows(self._key(f"windows:{GROUP}"), self.outbox, self.seals.guards, self.missing)
        self._suspects = Suspects(self.inboxes)
        self._group_cleanup = GroupCleanup(self.outbox.redis, self.run_id)

    async def resume(self) -> None:
        """Take up where the decisions stream and the persisted windows end."""
        redis = self.outbox.redis
        self._logs = {self._key(name): name for name in LOGS}
        await self.clock.look(redis)
        self._offset_ms = self.clock.offset_ms or 0
        await self.windows.take_over()  # only now is what was settled before complete
        record = await newest_said(redis, self._key("decisions"), self.decision, NUM_DECISIONS)
        settlement, succession = Settlement(), Succession()
        said = list(in_force((each for _, each in record), succession))
        self._group_cleanup.resume(said)
        outcome = self.rule.resume(said)
        self.rule.on_history_lost((), await self._newest(), self._now_ns(), again=False)  # of which nobody was told yet
        self._token = succession.next_token(self.clock.now_ms())
        self._announce(settlement)
        self._publish(outcome, settlement)
        await self.windows.insist(settlement)

    async def serve(self, stopping: asyncio.Event) -> None:
        """Resume, then answer until told to stop: whatever arrived is settled with the next tick.

        Where Redis is silent then, what is in hand stays pending, and whoever leads next waits for the lease.
        """
        inboxes = list(self.inboxes.values())
        await unless_silent(self._serve(stopping), stopping, self.outbox.redis, self.windows.hash_key, inboxes)

    async def _serve(self, stopping: asyncio.Event) -> None:
        await self.resume()
        async with kept_right(self.clock, self.outbox.redis):
            pumps = [asyncio.create_task(self._pump(name)) for name in self.inboxes]
            try:
                while not stopping.is_set():
                    await self.step(await self._arrivals.taken(TICK_S))
                    self._forget()
                    raise_first(pumps)
            finally:
                await self._stop(pumps)
        await self.windows.resign()

    async def _stop(self, pumps: Sequence[asyncio.Task[None]]) -> None:
        """Let each reader leave its read by itself; what it still reads stays pending for the next process."""
        self._is_ending = True
        for inbox in self.inboxes.values():
            inbox.stop()
        try:
            while not all(pump.done() for pump in pumps):
                self._arrivals.go_on()
                await self._arrivals.taken(TICK_S)
        finally:
            await end(pumps)

    async def _pump(self, name: str) -> None:
        """Carry batches from one stream to the loop, which reads four; one at a time, and only while there is room."""
        inbox = self.inboxes[name]
        await inbox.open()
        async for batch in inbox.batches():
            await self._arrivals.put(batch)
            while not (self.rule.has_room(name) or self._is_ending):
                inbox.held_back = True
                await self._arrivals.step()
            inbox.held_back = False

    async def step(self, deliveries: Sequence[Delivery]) -> None:
        """Answer deliveries, let time pass, settle all that follows."""
        settlement = Settlement()
        kinds = {self._logs[stream] for stream in {delivery.stream for delivery in deliveries}}
        await self._suspects.charge(self.rule.barrier, sum(each.stream == self._key("votes") for each in deliveries))
        await self._claim_where_a_read_broke()
        self._look_up()  # behind what is waited for: the clock is looked at meanwhile
        now_ns = self._now_ns()
        for delivery in await self._suspects.begin(deliveries):
            self._answer(delivery, settlement, now_ns)
        await self._suspects.acquit(deliveries, self._held.values())
        await self._look_for_what_is_in_doubt()
        self._look_up()
        if not settlement.empty or self._is_tick_due(kinds):
            self._tick_at_s = time.monotonic() + TICK_S
            ticked = self.rule.tick(self._now_ns())
            await self._group_cleanup.record(ticked)
            self._publish(ticked, settlement)
        is_news = not kinds.isdisjoint(COMMANDS)
        is_due = time.monotonic() >= self._renew_at_s
        if is_news or is_due or not settlement.empty:  # votes come again until they are settled: no call for each
            self._renew_at_s = time.monotonic() + self.lease_s / RENEWALS
            await self._insist(settlement, renew=is_due)
        await self._group_cleanup.proceed()
        self._arrivals.go_on()

    async def _claim_where_a_read_broke(self) -> None:
        """Redis may have lost what is in hand. To be known before a vote: a commit might name what no rank finds."""
        inboxes = self.inboxes.values()
        breaks = sum(inbox.num_breaks for inbox in inboxes), sum(inbox.num_history_lost for inbox in inboxes)
        if breaks != self._breaks:
            (_, before), self._breaks = self._breaks, breaks
            self._is_in_doubt = True
            if await self._insist(Settlement(), renew=True) == "whole" and breaks[1] != before:
                await self._recover("in part")

    async def _look_for_what_is_in_doubt(self) -> None:
        """What was read before Redis lost it, and came here only behind that."""
        is_in_doubt, self._is_in_doubt = self._is_in_doubt, False
        if is_in_doubt and await self._gone():
            await self._recover("in part")

    async def _insist(self, settlement: Settlement, *, renew: bool) -> Found:
        found = await self.windows.insist(settlement, renew=renew)
        if found != "whole":
            await self._recover(found)
        return found

    def _is_tick_due(self, kinds: Collection[str]) -> bool:
        """A tick looks at every rank, and votes come one by one: while more are awaited, only time is news to it."""
        return kinds != ONLY_VOTES or time.monotonic() >= self._tick_at_s

    def _look_up(self) -> None:
        """Where this process stood still, or Redis was away, the ranks' silence is none of theirs.

        Nor is it where the server's clock was set, or another server took over.
        """
        if (offset_ms := self.clock.offset_ms or 0) != self._offset_ms:
            self.rule.on_clock_step((offset_ms - self._offset_ms) * 1_000_000)
            self._offset_ms = offset_ms
        now_s, heard_s = time.monotonic(), self.inboxes["heartbeats"].polled_at_s
        if now_s - min(self._stepped_at_s, heard_s) > DEAF_S:
            self.rule.on_deaf(self._now_ns())
        self._stepped_at_s = now_s

    async def _recover(self, found: Found | Literal["in part"]) -> None:
        """Redis fell back or began anew, all or in part: let go of what it has lost, and tell those who read it."""
        self._is_in_doubt, gone = True, await self._gone()
        log.warning("run.claimed_again", found=found, num_entries=len(gone))
        for entry in gone:
            del self._held[entry]
        settlement = Settlement()
        outcome = self.rule.on_history_lost(gone, await self._newest(), self._now_ns(), again=found != "in part")
        self._publish(outcome, settlement)
        await self.windows.insist(settlement)

    async def _newest(self) -> dict[str, str]:
        return {name: await tail.newest_id(self.outbox.redis, self._key(name)) for name in COMMANDS}

    async def _gone(self) -> set[Entry]:
        """What is in hand, and no longer in Redis; where that fell back, another entry may have got the number."""
        redis, held = self.outbox.redis, dict(self._held)
        found = {(name, at): await tail.body_at(redis, self._key(name), at) for name, at in held}
        return {entry for entry, body in found.items() if body != held[entry].body}

    def _answer(self, delivery: Delivery, settlement: Settlement, now_ns: int) -> None:
        name = self._logs[delivery.stream]
        entry = (name, delivery.entry_id)
        if delivery.spent:
            why = f"handed over {delivery.attempts - 1} times, never settled"
            reject_spent(settlement, delivery)
            poison = RefusedError(pb.ReasonCode.REASON_POISON, why)
            self._publish(self.rule.on_refused(entry, poison, now_ns), settlement)
            return
        if (held := self._held.get(entry)) is not None and held.body == delivery.body:
            return  # its group began anew: opened again it might be refused by now, though a round is to name it
        try:
            opened = self.seals.openers[name].open(delivery.body, delivery.entry_id, now_ns // 1_000_000)
        except RefusedError as error:
            self._refuse(entry, delivery, error, settlement, now_ns)
            return
        if name in COMMANDS:
            self.missing.note(opened.header)
        if name == "heartbeats" and opened.redelivered:  # of a process that may have been replaced since
            settlement.ack(delivery)
            return
        self._held[entry] = delivery
        self._publish(self._handle(name, opened, settlement, now_ns), settlement)

    def _refuse(
        self, entry: Entry, delivery: Delivery, error: RefusedError, settlement: Settlement, now_ns: int
    ) -> None:
        """What can't be believed is set aside and answered; of a flood none but the first."""
        if entry[0] in COMMANDS:
            self.missing.note_refused(delivery.body, error)
        if isinstance(error, UnsealedError):  # else a log that is kept whole would grow with every flood
            settlement.drop(delivery)
        if self.refusals.note(delivery.stream, delivery.entry_id, error):
            settlement.reject(delivery, error)
            self._publish(self.rule.on_refused(entry, error, now_ns), settlement)
        else:
            settlement.ack(delivery)  # a flood would cost a letter and a sealed receipt each
            self.rule.pass_over(entry)

    def _handle(self, name: str, opened: Opened, settlement: Settlement, now_ns: int) -> Outcome:
        match opened.message:
            case pb.Heartbeat():
                self._outbid(min(opened.message.lease_token, MOST), settlement)
                self.figures.hear(opened.message)
                outcome = self.rule.on_heartbeat(opened.message, now_ns)
                outcome.done.append((name, opened.entry_id))
                return outcome
            case pb.BarrierVote():
                return self.rule.on_vote(opened.message, (name, opened.entry_id), now_ns)
            case _:
                return self.rule.on_command(name, opened, now_ns)

    def _announce(self, settlement: Settlement) -> None:
        """Nobody else can settle anything by now; where Redis forgets that, those who read this don't."""
        leader, token = self.seals.sealer.producer, self._token
        said = pb.LeaderAnnouncement(version=1, leader=leader, lease_token=token, time_ns=self._now_ns())
        log.info("coordinator.leads", lease_token=token)
        settlement.write(self._key("decisions"), self.seals.sealer.seal(said))

    def _outbid(self, token: int, settlement: Settlement) -> None:
        """Redis lost who led, and its clock is behind: ranks that have met a higher token ignore what is said here."""
        if token > self._token:
            self._token = token + 1
            self._announce(settlement)
            self._publish(self.rule.on_history_lost((), {}, self._now_ns(), again=True), settlement)

    def _publish(self, outcome: Outcome, settlement: Settlement) -> None:
        self.figures.note(outcome)
        for decision in outcome.decisions:
            tell(decision)
            decision.lease_token = self._token
            generation = decision.roster_generation
            settlement.write(self._key("decisions"), self.seals.sealer.seal(decision, roster_generation=generation))
        for receipt in outcome.receipts:
            settlement.write(self._key("receipts"), self.seals.sealer.seal(receipt))
        for entry in outcome.done:
            settlement.ack(self._held.pop(entry))
        self._group_cleanup.follow(outcome)

    def decision(self, sealed: bytes, entry_id: str) -> Opened:
        """One of its own stream, opened; RefusedError says what was wrong."""
        return self.seals.decisions.open(sealed, entry_id, self.clock.now_ms())

    def _forget(self) -> None:
        """Every minute: windows of producers long gone."""
        now_ns = self._now_ns()
        if now_ns - self._forgot_ns < FORGET_EVERY_NS:
            return
        self._forgot_ns = now_ns
        in_hand = (entry_ms(entry_id) for _, entry_id in self._held)
        oldest_ms = min(in_hand, default=now_ns // 1_000_000)
        for guard in self.seals.guards.values():
            guard.forget(min(oldest_ms, now_ns // 1_000_000 - FORGET_AFTER_MS))

    def _key(self, name: str) -> str:
        return names.key(self.run_id, name)

    def _now_ns(self) -> int:
        """By the server's clock as the rule was told of it, which may be looked at while a step waits for Redis."""
        return (self._offset_ms + time.monotonic_ns() // 1_000_000) * 1_000_000
