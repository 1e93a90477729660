"""What was decided before a trainer began, as orders, for one that resumes from a state older than that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import structlog

from esper.bus import names, tail
from esper.bus.connect import Redis, ServerClock
from esper.bus.group.delivery import Delivery
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.entries import before, entry_order
from esper.leyline.seal import Opened, Opener
from esper.leyline.succession import Decision, Said
from esper.runtime.beside.orders import EntryId, Orders
from esper.runtime.coordinator.lookback import newest_said

NUM_READ = 256
NUM_BEFORE = 64
"""Decisions before those asked for, by which it is known who led then: each names its leader's token."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Recaller:
    """Reads a run's logs once more, beside the groups: nothing is acknowledged, noted or moved by it.

    `openers` by log, without replay windows: an entry is met here a second time.
    """

    redis: Redis
    run_id: str
    name: str
    openers: Mapping[str, Opener]
    clock: ServerClock

    async def recall(self, asked: pb.Recall, past: EntryId) -> list[pb.CommitOrder]:
        """Orders decided after the entry asked for and up to `past`, in their order, each with its commands.

        Left out is what was proposed up to that entry, and decided behind it: the trainer whose state it is had begun
        in between, and was bound to nothing by it. The list ends before the first one of which a command is on no log
        any more. Where the log was trimmed beyond that entry, as it may be once a replica has left, that is told and
        the rest found. Raises TrainingError where a commit's digest does not cover what it names.
        """
        orders, found = Orders(past=entry_order(asked.after), worker=self.name), list[pb.CommitOrder]()
        if entry_order(asked.after) > (0, 0) and not await self._is_there(asked.after):
            why = "the log begins behind this checkpoint: what was decided between the two is not carried out again"
            log.error("decisions.not_recalled", after=asked.after, why=why)
        await self._know_past(asked.after, orders)
        async for decision, delivery in self._decisions(asked, past):
            if isinstance(decision, Decision) and orders.is_past(decision, delivery):
                continue
            match decision:
                case pb.BarrierCommit():
                    await self._hold(decision, orders)
                    decision.ClearField("quarantined")  # the process that had voted, and has ended
                    told, _ = orders.on_commit(decision, delivery)
                case pb.BarrierAbort():
                    decision.ClearField("evicted")  # so has that process
                    told, _ = orders.on_abort(decision, delivery)
                case pb.LeaderAnnouncement():
                    told, _ = orders.on_announcement(decision, delivery)
                case _:
                    continue
            found += [message.commit for message in told if message.HasField("commit")]
        if orders.num_waiting:
            log.error("decisions.not_recalled", num=orders.num_waiting, why="the logs lack a command that is named")
        return found

    async def follow_until(self, after: str, orders: Orders) -> None:
        """Let orders know who led at an entry, so that what a leader said later that was replaced by then is void."""
        for _, said in await self._newest(after):
            orders.follow(said)

    async def take_up(self, orders: Orders, oldest: str, newest: str) -> None:
        """Let orders know what an earlier runtime of this trainer knew, which has read up to `newest`.

        That is what was past when the trainer began, and who has led from where since. `oldest` is the first entry that
        was not acknowledged, and will be met again; empty: there is none.
        """
        past = "{}-{}".format(*orders.past)
        await self._know_past(past, orders)
        orders.past_is_known = True
        start = before(oldest) if oldest else newest
        if entry_order(start) > orders.past:
            await self.follow_until(start, orders)
        async for at, said in self._between(max(start, past, key=entry_order), newest):
            if isinstance(said, pb.LeaderAnnouncement):
                orders.leads(said, entry_order(at))

    async def _know_past(self, until: str, orders: Orders) -> None:
        for at, said in await self._newest(until):
            if isinstance(said, pb.LeaderAnnouncement):
                orders.follow(said)
            else:
                orders.is_past(said, self._delivery("decisions", at))

    async def _newest(self, until: str) -> list[tuple[str, Said]]:
        return await newest_said(self.redis, self._key("decisions"), self._decision, NUM_BEFORE, end=until or "0-0")

    async def _decisions(self, asked: pb.Recall, past: EntryId) -> AsyncIterator[tuple[Said, Delivery]]:
        async for at, said in self._between(asked.after or "0-0", f"{past[0]}-{past[1]}"):
            if not _is_older(said, asked.roster_generation):
                yield said, self._delivery("decisions", at)

    async def _is_there(self, at: str) -> bool:
        return bool(await self.redis.ask(("XRANGE", self._key("decisions"), at, at)))

    async def _hold(self, commit: pb.BarrierCommit, orders: Orders) -> None:
        for ref in commit.commands:
            rows = await self.redis.ask(("XRANGE", self._key(ref.stream), ref.entry_id, ref.entry_id))
            for at, sealed in map(tail.message, rows):
                if (opened := self._opened(ref.stream, at, sealed)) is not None:
                    orders.on_command(ref.stream, opened, self._delivery(ref.stream, at, sealed))

    async def _between(self, after: str, through: str) -> AsyncIterator[tuple[str, Said]]:
        """What was said; junk is passed over, and told of in one line."""
        num_refused, why = 0, ""
        while entry_order(after) < entry_order(through):
            words = ("XRANGE", self._key("decisions"), f"({after}", through, "COUNT", str(NUM_READ))
            rows = [tail.message(row) for row in await self.redis.ask(words)]
            for at, sealed in rows:
                try:
                    message = self._decision(sealed, at).message
                except RefusedError as error:
                    num_refused, why = num_refused + 1, str(error)
                    continue
                if isinstance(message, Said):
                    yield at, message
            after = rows[-1][0] if len(rows) == NUM_READ else through
        if num_refused:
            log.warning("entries.passed_over", stream=self._key("decisions"), num=num_refused, why=why)

    def _decision(self, sealed: bytes, at: str) -> Opened:
        return self.openers["decisions"].open(sealed, at, self.clock.now_ms())

    def _opened(self, stream: str, at: str, sealed: bytes) -> Opened | None:
        try:
            return self.openers[stream].open(sealed, at, self.clock.now_ms())
        except RefusedError as error:
            log.warning("entry.not_recalled", stream=stream, entry_id=at, why=str(error))
            return None

    def _delivery(self, stream: str, at: str, sealed: bytes = b"") -> Delivery:
        return Delivery(self._key(stream), self.name, at, sealed, 1, self.name)

    def _key(self, stream: str) -> str:
        return names.key(self.run_id, stream)


def _is_older(said: Said, roster_generation: int) -> bool:
    """Whether it is about a roster that was not the newest any more."""
    return not isinstance(said, pb.LeaderAnnouncement) and said.roster_generation < roster_generation
