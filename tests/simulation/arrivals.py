"""One rank's side of a run, entry by entry: its logs, the runtime that reads them, the trainer beside it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from esper.bus import names
from esper.bus.connect import Redis, ServerClock
from esper.bus.group.delivery import FIELD, Delivery
from esper.bus.group.settlement import Settlement
from esper.errors import EvictedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.validate.bounds import PROMISE_STEPS
from esper.runtime.beside.following import Following
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.recall import Recaller
from esper.runtime.serving.clock_skew import DatedOpener
from esper.tolaria.boundary import Boundary
from esper.tolaria.state.recalled import still_to_do
from tests.simulation.keys import WORKER
from tests.simulation.record import RUN

ME, INCARNATION = "worker-0", 7
LOGS = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "decisions": Domain.DECISION}
ROUND_STEPS = 20
"""Between the steps at which two rounds take effect."""
LAST_STEP = 3 * ROUND_STEPS + 1
NOW_MS = 1_800_000_000_000

T = TypeVar("T")
Entries = Sequence[tuple[str, bytes]]
Outcome = tuple[tuple[int, int, tuple[str, ...]], ...]
"""Of each round that was carried out its number, its step and the commands."""


class Standing(ServerClock):
    """A clock that stands still."""

    def now_ms(self) -> int:
        return NOW_MS


def at_once(asked: Coroutine[Any, Any, T]) -> T:
    """What comes of it where nothing is ever waited for."""
    try:
        asked.send(None)
    except StopIteration as answer:
        return cast(T, answer.value)
    raise AssertionError("it waited")


@dataclass
class Logs:
    """What Redis holds for one rank: three logs, a group on each, and what its runtimes have settled."""

    entries: Mapping[str, Entries]
    published: dict[str, int]  # as many of them are there
    read: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))
    pending: dict[str, dict[str, int]] = field(default_factory=lambda: {log: {} for log in LOGS})  # times handed over
    windows: dict[str, dict[str, bytes]] = field(default_factory=lambda: {log: {} for log in LOGS})
    receipts: list[pb.CommandReceipt] = field(default_factory=list)

    def there(self, log: str) -> Entries:
        return self.entries[log][: self.published[log]]

    def read_before(self, log: str) -> tuple[str, str]:
        """The oldest entry that is pending, and the newest that was handed over."""
        read = self.entries[log][: self.read[log]]
        return min(self.pending[log], key=entry_order, default=""), read[-1][0] if read else ""

    async def ask(self, words: Sequence[Any]) -> list[Any]:
        """What a plain read brings: XRANGE and XREVRANGE, with COUNT."""
        verb, stream, first, last = words[:4]
        log = next(log for log in LOGS if names.key(RUN, log) == stream)
        low, high = (first, last) if verb == "XRANGE" else (last, first)
        rows = [row for row in self.there(log) if _from(low, row[0]) and _to(high, row[0])]
        rows = rows if verb == "XRANGE" else rows[::-1]
        count = int(words[words.index("COUNT") + 1]) if "COUNT" in words else len(rows)
        return [(at.encode(), [FIELD, sealed]) for at, sealed in rows[:count]]

    def settle(self, settlement: Settlement, guards: Mapping[str, ReplayGuard]) -> None:
        """One call: acknowledged, and what was met is on record."""
        for (stream, _, _), ids in settlement.acks.items():
            for entry_id in ids:
                self.pending[stream].pop(entry_id, None)  # its group may be gone
        for write in settlement.writes:
            self.receipts.append(pb.CommandReceipt.FromString(write.fields[FIELD]))
        for log, guard in guards.items():
            for name, value in guard.changed().items():
                self.windows[log].pop(name, None) if not value else self.windows[log].update({name: value})


def _from(low: str, at: str) -> bool:
    if low.startswith("("):
        return entry_order(at) > entry_order(low[1:])
    return low == "-" or entry_order(at) >= entry_order(low)


def _to(high: str, at: str) -> bool:
    if high.startswith("("):
        return entry_order(at) < entry_order(high[1:])
    return high == "+" or entry_order(at) <= entry_order(high)


@dataclass(frozen=True)
class Kept:
    """A checkpoint, made behind the orders of its step: what it has met of the decisions, and what was carried out."""

    step: int = 1
    decided: str = "0-0"
    carried_out: tuple[tuple[int, int, tuple[str, ...]], ...] = ()


@dataclass
class Life:
    """A trainer and the runtime beside it. Both may be killed at any moment, the trainer with its runtime."""

    logs: Logs
    past: str = ""
    is_replica: bool = False
    resumes: bool = False
    step: int = 1
    boundary: Boundary = field(default_factory=Boundary)
    carried_out: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=list)
    told: list[tuple[str, int]] = field(default_factory=list)  # by the runtime that lives
    kept: Kept = field(default_factory=lambda: Kept())
    furthest: int = ROUND_STEPS - PROMISE_STEPS  # later it can't give its next vote

    def begin(self) -> None:
        """Of itself: it knows nothing of those before it."""
        self.start_runtime()

    def resume(self, kept: Kept) -> None:
        """Go on from a checkpoint: what was decided since is carried out again."""
        self.kept, self.step, self.carried_out = kept, kept.step, list(kept.carried_out)
        asked = pb.Recall(after=kept.decided, roster_generation=1)
        found = at_once(self.recaller().recall(asked, entry_order(self.past)))
        self.boundary.recall(still_to_do(found, kept.step))
        self.resumes = True
        self.start_runtime()

    def start_runtime(self) -> None:
        """Anew: it knows what Redis does, and gets again what is pending."""
        self.guards = {log: ReplayGuard() for log in LOGS}
        for log, guard in self.guards.items():
            guard.load(self.logs.windows[log])
        orders = Orders(past=entry_order(self.past), worker=ME)
        at_once(self.recaller().take_up(orders, *self.logs.read_before("decisions")))
        openers = {log: _opener(log, self.guards[log]) for log in LOGS}
        self.runtime = Following(RUN, ME, openers, lambda message: message.SerializeToString(), lambda: NOW_MS, orders)
        self.runtime.inherits = self.is_replica and self.resumes
        self.again = {log: list(self.logs.pending[log]) for log in LOGS}
        self.told = []
        self.runtime.begin(self.boundary.again)
        orders.incarnation, orders.round_applied = INCARNATION, self.boundary.round_applied
        for answer in self.boundary.again.values():
            if answer is not None:
                self.answer(answer)

    def lose_groups(self) -> None:
        """They are destroyed, and made again at the beginning of their logs."""
        self.logs.read, self.logs.pending = dict.fromkeys(LOGS, 0), {log: {} for log in LOGS}
        self.again = {log: [] for log in LOGS}

    def recaller(self) -> Recaller:
        return Recaller(cast(Redis, self.logs), RUN, ME, {log: _opener(log, None) for log in LOGS}, Standing())

    def has_more(self, log: str) -> bool:
        return bool(self.again[log]) or self.logs.read[log] < self.logs.published[log]

    def read(self, log: str, *, dies: bool = False) -> None:
        """The next entry of a log, pending ones first; `dies`: before anything is settled, and another is started."""
        delivery = self._taken(log)
        settlement = Settlement()
        for message in self.runtime.read(log, delivery, settlement):
            self.hear(message)
        if dies:
            self.start_runtime()
            return
        self.logs.settle(settlement, self.guards)

    def _taken(self, log: str) -> Delivery:
        logs = self.logs
        if self.again[log]:
            entry_id = self.again[log].pop(0)
        else:
            entry_id = logs.entries[log][logs.read[log]][0]
            logs.read[log] += 1
        attempts = logs.pending[log][entry_id] = logs.pending[log].get(entry_id, 0) + 1
        return Delivery(log, ME, entry_id, dict(logs.entries[log])[entry_id], attempts, ME)

    def hear(self, message: pb.ToTrainer) -> None:
        match message.WhichOneof("message"):
            case "proposal":
                self._note("proposal", message.proposal.round)
                self.boundary.on_proposal(message.proposal)
            case "commit":
                self._note("commit", message.commit.commit.round)
                if (answer := self.boundary.on_commit(message.commit)) is not None:
                    self.answer(answer)
            case "recalled":
                [order] = message.recalled.orders
                self._note("commit", order.commit.round)
                self.boundary.recall(message.recalled.orders)
            case "abort":
                self._note("abort", message.abort.round)
                self.boundary.on_abort(message.abort)

    def _note(self, kind: str, number: int) -> None:
        self.told.append((kind, number))
        self.furthest = max(self.furthest, ROUND_STEPS * (number + 1) - PROMISE_STEPS)

    def answer(self, answer: pb.RoundApplied) -> None:
        settlement = Settlement()
        if self.runtime.applied(answer, settlement):
            self.logs.settle(settlement, self.guards)

    def train(self, num_steps: int) -> None:
        """So many steps, or fewer where one must wait."""
        for _ in range(num_steps):
            if self.must_wait() or self.step >= self.furthest:
                return
            self.step += 1

    def must_wait(self) -> bool:
        """As a step boundary: carry out what is due, vote if asked."""
        while (order := self.boundary.due(self.step)) is not None:
            ids = tuple(each.ref.command_id for each in order.commands)
            self.carried_out.append((order.commit.round, self.step, ids))
            self.answer(self.boundary.applied(order, [pb.CommandReceipt(command_id=each) for each in ids]))
            self.kept = Kept(self.step, order.entry_id, tuple(self.carried_out))
        if (asked := self.boundary.vote_asked()) is not None:
            self.boundary.voted(pb.BarrierVote(round=asked.round, worker=ME, step=self.step))
        return self.boundary.must_wait(self.step)

    def drain(self, turn: Sequence[str]) -> None:
        """All that is there is read, log by log in this order, an entry of each in turn."""
        while any(self.has_more(log) for log in turn):
            for log in turn:
                if self.has_more(log):
                    self.read(log)

    def look_up(self) -> None:
        """As the runtime does of what a commit waits for."""
        last: list[pb.CommittedCommand] = []
        while (awaited := self.runtime.orders.awaited()) != last:
            last = awaited
            for ref in awaited:
                settlement, rows = Settlement(), dict(self.logs.there(ref.stream))
                for message in self.runtime.look_up(ref, rows.get(ref.entry_id), settlement):
                    self.hear(message)
                self.logs.settle(settlement, self.guards)

    def comes_to_an_end(self) -> bool:
        """Whether the trainer gets to its last step once all is read: else it waits for what will never come."""
        while self.step < LAST_STEP and not self.must_wait():
            self.step += 1
        return self.step >= LAST_STEP and not self.runtime.orders.num_waiting


def _opener(log: str, guard: ReplayGuard | None) -> DatedOpener:
    return DatedOpener(WORKER, Standing(), name=ME, guard=guard, accept=[LOGS[log]], carries_out=True)


def interleavings(counts: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Every order in which so many entries of each log may be met."""
    if not any(counts.values()):
        yield ()
    for log, count in counts.items():
        if count:
            for rest in interleavings({**counts, log: count - 1}):
                yield (log, *rest)


def ended(life: Life, turn: Sequence[str]) -> str:
    """How it ends where nothing more befalls it: an error's name, else nothing. AssertionError: it waits for ever."""
    try:
        life.drain(turn)
        life.look_up()
        assert life.comes_to_an_end(), f"waits for ever before step {life.step}, told {life.told}"
    except (TrainingError, EvictedError) as error:
        return type(error).__name__
    return ""
