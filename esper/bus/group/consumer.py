"""The protocol of one consumer of one group, through restarts, lost connections and lost groups. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from esper.bus.backoff import Backoff
from esper.bus.faults import NoGroupError, UnavailableError
from esper.bus.group.delivery import Delivery, entries_of
from esper.bus.group.pending import Pending, Source
from esper.bus.group.script import RELEASE, call
from esper.bus.protocol import Ask, Pause, Steps, Surroundings
from esper.errors import BusError

BLOCK_MS = 500
RECLAIM_EVERY_MS = 500
LONGEST_REST_S = 10.0
BUSY = 2  # times the usual count is read at once where the last read was full: a reply that fits into a socket
MOST_BYTES, FEWEST = 1 << 18, 32
"""Of larger entries fewer are read at once, and then settled: meanwhile the server serves nobody else."""
SWEEP_AGAIN_S = (*(0.5 * tick for tick in range(1, 21)), 15.0)
"""After a read was given up, or by an earlier incarnation: it may be answered to nobody, that much later."""
LOSSES_APART_S = 1.0
NUM_RELEASED = 500  # entries a call, which then blocks the server for less than 5 ms

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """How a consumer reads. `reclaim_after_ms` None: nobody takes over from another, and order is kept."""

    count: int = 256
    block_ms: int = BLOCK_MS
    reclaim_after_ms: int | None = None
    sweep_every_s: float | None = None  # where another process of this name may still read: what it got is ours
    in_order: bool = False  # and comes before what was added later


STEADY = Pace()


class Consumer:
    """Own pending entries first, then new ones, and those of consumers that died. Acknowledges nothing.

    An entry is handed over once, until rewind() or abandon(). Where others take over what this one leaves, new entries
    and pending ones take turns; else what is pending comes first, in order.
    """

    def __init__(self, source: Source, pace: Pace, surroundings: Surroundings) -> None:
        self.source, self.pace, self.surroundings = source, pace, surroundings
        self.pending = Pending(source, pace.count)
        self.num_history_lost = self.num_interrupted = 0
        self.polled_at_s = surroundings.clock()
        self.full = False
        """Whether the last read of new entries brought as many as were asked for."""
        self._who = f"{source.group} of {source.stream}"
        self._count, self._most, self._backoff = pace.count, pace.count, Backoff(surroundings.jitter)
        self._opened, self._rewound, self._calm, self._new_turn = False, False, False, False
        self._lost: BusError | None = None
        self._unsure = False  # whether the group was made by a call whose reply was lost
        self._lost_at_s = -LOSSES_APART_S
        self._reclaim_at_s, self._pass_began_s, self._more_to_reclaim = 0.0, 0.0, False
        # A read of an earlier incarnation of this name may still be on its way; in a shared group others take over.
        self._sweeps_at_s = self._later() if pace.reclaim_after_ms is None else []

    @property
    def idle(self) -> bool:
        """Whether the last look found nothing new, and all that is pending is in hand."""
        return self._calm and not (self._more_to_reclaim or self.pending.sweeping)

    @property
    def may_read_ahead(self) -> bool:
        """Whether new entries are to be read while a batch is in hand: there are many, and nothing else is due.

        On a stream that is busy without end nobody would ever take over what others left.
        """
        return self.full and not (self.pending.sweeping or self._rewound or self._is_due())

    def open(self) -> Steps[bool]:
        """Make the group, at the beginning of the stream, unless it is there; whether it was made."""
        words = ("XGROUP", "CREATE", self.source.stream, self.source.group, "0", "MKSTREAM")
        try:
            yield Ask(words)
            made = True
        except UnavailableError:
            self._unsure = True
            raise
        except BusError as error:
            if "BUSYGROUP" not in str(error):
                raise
            made = self._unsure
        self._opened, self._unsure = True, False
        if made and self._lost is not None:
            self.num_history_lost += 1
            log.error("history.lost", stream=self.source.stream, group=self.source.group, why=str(self._lost))
        self._lost = None
        return made

    def rewind(self, ahead: Iterable[Delivery] = ()) -> None:
        """Hand over again whatever is still pending, but for what was read ahead: after a settlement was refused."""
        self.pending.forget_all_but(delivery.entry_id for delivery in ahead)
        self._rewound = True  # a read under way must not move the cursor that is set back

    def settled(self, batch: Iterable[Delivery]) -> None:
        """These are acknowledged: not in hand any more, and handed over again by a server that falls back."""
        self.pending.forget(delivery.entry_id for delivery in batch)

    def abandon(self, batch: Sequence[Delivery]) -> None:
        """Hand these over again, if they are pending still: whether they were handled is not known."""
        self.pending.forget(delivery.entry_id for delivery in batch)
        self._rewound = True

    def begin(self, delivery: Delivery) -> Steps[bool]:
        """Whether an entry that came alone may be tried now; else it is another's, or comes again."""
        try:
            return (yield from self.pending.begin(delivery))
        except (NoGroupError, UnavailableError):
            self.abandon([delivery])
            return False

    def absolve(self) -> Steps[None]:
        """Whoever had it in hand lives. Where nobody can be told, it counts as before."""
        with suppress(UnavailableError):
            yield from self.pending.absolve()

    def acquit(self, entry_ids: Sequence[str]) -> Steps[None]:
        """Their last delivery does not count, also where it was made alone."""
        with suppress(UnavailableError):
            yield from self.pending.acquit(entry_ids)

    def next_batch(self, *, wait: bool = True) -> Steps[list[Delivery]]:
        """The next entries, from now on in hand. Empty: nothing came while the server blocked, or it had to wait."""
        self._calm = arrived = False
        try:
            batch = yield from self._look(wait)
            arrived = self._calm = True
        except NoGroupError as error:
            arrived = True
            yield from self._on_history_lost(error)
            return []
        except UnavailableError as error:
            arrived = True
            yield from self._on_lost(error)
            return []
        finally:
            if not arrived:
                self._interrupted()
        self.polled_at_s = self.surroundings.clock()
        self._backoff.reset()
        self.surroundings.outage.ends(self._who)
        return batch

    def ahead(self) -> Steps[list[Delivery]]:
        """New entries while a batch is in hand, from now on in hand too. What goes wrong shows at the next batch.

        Only to be asked for new entries' sake, `full`: entries that are delivered again must not be counted as failed
        because another one kills the process.
        """
        arrived = self._calm = False
        try:
            batch = yield from self._new(0)
            arrived = True
            return batch
        except NoGroupError:
            return []
        except UnavailableError as error:
            self.surroundings.outage.begins(self._who, error)
            return []
        finally:
            if not arrived:
                self._interrupted()

    def release(self, unread: Sequence[Delivery]) -> Steps[int]:
        """Hand back all that is pending, for the next reclaim of any consumer; then remove this consumer.

        Nothing may be in hand any more. `unread` was read but never handled: that delivery does not count.
        """
        if self.pace.reclaim_after_ms is None:
            return 0  # of a group of its own, whose next incarnation reads on
        stream, group, consumer = self.source
        ids = [delivery.entry_id for delivery in unread if self.pending.is_counted(delivery)]
        total, left = 0, 1
        while left:
            reply: list[int] = yield from call(RELEASE, [stream], [group, consumer, str(NUM_RELEASED), *ids])
            total, left = total + reply[0], reply[1]
        return total

    # -- one look --------------------------------------------------------------------------------------------------

    def _look(self, wait: bool) -> Steps[list[Delivery]]:
        if not self._opened:
            yield from self.open()
        self._set_back()
        if not self._new_turn and (batch := (yield from self._own())):
            self._new_turn = self.pace.reclaim_after_ms is not None
            return batch
        self._new_turn = False
        batch = yield from self._new(self._block_ms() if wait else 0)
        if not batch and self.pending.sweeping:
            return (yield from self.pending.sweep())
        return batch

    def _own(self) -> Steps[list[Delivery]]:
        """What is pending; only once that is handed over, what others left: else the own list grows from look to look,
        and with it all that walks it."""
        if self.pending.sweeping and (batch := (yield from self.pending.sweep())):
            return batch
        if self.pace.reclaim_after_ms is not None and self.surroundings.clock() >= self._reclaim_at_s:
            yield from self._reclaim(self.pace.reclaim_after_ms)
        return (yield from self.pending.sweep()) if self.pending.sweeping else []

    def _set_back(self) -> None:
        """Walk the pending list anew where what was in hand is so no longer, or something may have come in late."""
        if self._sweeps_at_s and self.surroundings.clock() >= self._sweeps_at_s[0]:
            self._sweeps_at_s.pop(0)
            self._rewound = True
            if not self._sweeps_at_s and self.pace.sweep_every_s is not None:
                self._sweeps_at_s = [self.surroundings.clock() + self.pace.sweep_every_s]
        if self._rewound:
            self._rewound = False
            self.pending.restart()

    def _new(self, block_ms: int) -> Steps[list[Delivery]]:
        """Entries that nobody of the group was handed yet."""
        stream, group, consumer = self.source
        block = ("BLOCK", str(block_ms)) if block_ms else ()
        words = ("XREADGROUP", "GROUP", group, consumer, "COUNT", str(self._count), *block, "STREAMS", stream, ">")
        reply: Any = yield Ask(words, block_ms)
        rows = entries_of(reply)
        self.full = len(rows) >= self._count
        if rows and self.pace.in_order and not (yield from self.pending.follow(rows)):
            return []
        batch = yield from self.pending.fresh(rows)
        self._most = most_of(batch) if batch else self._most
        self._count = min(self.pace.count * BUSY if self.full else self.pace.count, self._most)
        return batch

    def _reclaim(self, min_idle_ms: int) -> Steps[None]:
        """Every half second or sooner, with jitter; at once where the last look did not reach the end.

        A pass over a list so long that it takes longer is followed by a rest twice as long, to leave the server free.
        """
        if not self._more_to_reclaim:
            self._pass_began_s = self.surroundings.clock()
        self._more_to_reclaim = yield from self.pending.reclaim(min_idle_ms)
        now_s = self.surroundings.clock()
        interval_s = min(max(min_idle_ms, 1), RECLAIM_EVERY_MS) / 1000 * self.surroundings.jitter.uniform(0.8, 1.0)
        rest_s = max(interval_s, min(LONGEST_REST_S, 2 * (now_s - self._pass_began_s)))
        self._reclaim_at_s = 0.0 if self._more_to_reclaim else now_s + rest_s

    def _is_due(self) -> bool:
        """Whether it is time to look at what others left, or again at the own pending list."""
        now_s = self.surroundings.clock()
        reclaims = self.pace.reclaim_after_ms is not None and now_s >= self._reclaim_at_s
        return reclaims or (bool(self._sweeps_at_s) and now_s >= self._sweeps_at_s[0])

    def _block_ms(self) -> int:
        """As long as asked for, but not past what is due then; 0, which is not to block, where something is due now."""
        if self.pending.sweeping or self._more_to_reclaim:
            return 0
        due_s = [*self._sweeps_at_s[:1], *([] if self.pace.reclaim_after_ms is None else [self._reclaim_at_s])]
        left_ms = [int((at_s - self.surroundings.clock()) * 1000) for at_s in due_s]
        return max(1, min([self.pace.block_ms, *left_ms]))

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def _on_history_lost(self, error: NoGroupError) -> Steps[None]:
        """Begin anew, at most once a second: who makes the group again says what was lost."""
        now_s = self.surroundings.clock()
        wait_s = self._lost_at_s + LOSSES_APART_S - now_s
        self._lost_at_s = now_s + max(0.0, wait_s)
        self._lost, self._opened = error, False
        self.rewind()
        if wait_s > 0:
            yield Pause(wait_s)

    def _on_lost(self, error: BusError) -> Steps[None]:
        """Wait, and begin again with the own pending list: the server may have delivered what never arrived."""
        self.surroundings.outage.begins(self._who, error)
        self._interrupted()
        yield Pause(self._backoff.next_s())

    def _interrupted(self) -> None:
        self._rewound = True
        self._sweeps_at_s = self._later()
        self.num_interrupted += 1

    def _later(self) -> list[float]:
        now_s = self.surroundings.clock()
        return [now_s + later_s for later_s in SWEEP_AGAIN_S]


def most_of(batch: Sequence[Delivery]) -> int:
    """How many entries as large as these are read at once: a multiple of the fewest, so that windows of 32 fill."""
    num_bytes = sum(len(delivery.body) for delivery in batch)
    return max(1, MOST_BYTES * len(batch) // max(num_bytes, 1) // FEWEST) * FEWEST
