"""What a trainer says to the runtime beside it, and hears from it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from esper.errors import RuntimeLostError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.frames import in_parts
from esper.runtime.beside.heartbeat_repeater import repeated
from esper.tolaria.boundary import Boundary
from esper.tolaria.rows.rows import IN_FLIGHT, Rows

log = structlog.get_logger()

FLUSH_STEPS, FLUSH_S = 32, 0.25
HEARTBEAT_S = 0.5
FULL = IN_FLIGHT // 2  # rows under way: it is time to hear which of them are stored
LONGEST_BACKOFF_S = 30.0
RECALL_S = 30.0
CLOSE_S = 5.0
NUM_RECORDS = 32
"""Of rounds that a dead runtime may not have stored: none is decided for a trainer that has no runtime."""
NOTHING = b"\0"
HURRY_S = 1.0
"""Each of the last waits gets no longer than this where a signal ends the process."""


class Doorbell(Protocol):
    """[0] is 0 where nothing can have come since the last look."""

    def __getitem__(self, at: int, /) -> int: ...


class Lanes(Protocol):
    """The trainer's end of a link: to a runtime, or to what stands in for one on a replay."""

    alive: bool
    num_starts: int
    decided: str  # entry of the newest decision when the trainer began, as a runtime told

    @property
    def doorbell(self) -> Doorbell: ...
    def start(self) -> None: ...
    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]: ...
    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None: ...
    def rows_lane_free(self) -> bool: ...
    def send_rows(self, message: pb.ToRuntime) -> None: ...
    def close(self, timeout_s: float = 5.0) -> None: ...


class Unstored(Protocol):
    """What is kept until it is known to be stored."""

    @property
    def num_waiting(self) -> int: ...
    def stored(self, number: int) -> None: ...
    def say_again(self) -> None: ...


@dataclass
class Exchange:
    """Joins the link with the boundary and the rows. A lost runtime is started anew while training goes on.

    Without a link (attach(required=False)) everything said is dropped, and nothing is ever heard.
    """

    link: Lanes | None
    boundary: Boundary
    rows: Rows
    foreseen: list[pb.SeedCommand] = field(default_factory=list)  # germinations not judged yet
    report_stored: bool = False
    flush_at: float = 0.0  # monotonic seconds: hand over rows then, at the latest
    windows: dict[str, bytes] = field(default_factory=dict)  # of replay: what the runtimes have met, as they told
    _recalled: list[pb.CommitOrder] = field(default_factory=list)
    _is_recalling: bool = False
    _asked_of: int = 0  # which runtime is to answer, by its start: what a later one recalls is what it inherits
    statements: Unstored | None = None
    is_hurried: bool = False  # a signal ends this process: no runtime is started any more, and no wait is long
    _introduction: pb.ToRuntime | None = None
    _records: deque[pb.ToRuntime] = field(default_factory=lambda: deque(maxlen=NUM_RECORDS))
    _beat: pb.Heartbeat | None = None
    _revive_at: float = 0.0
    _backoff_s: float = field(default=FLUSH_S)

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take in what has come, waiting up to `timeout_s` for the first message."""
        if self.link is None:
            return
        if not self.link.alive:
            if self.is_hurried:
                return
            self._revive(self.link)
        for message in self.link.poll(timeout_s):
            self._hear(message)

    def say(self, message: pb.ToRuntime) -> None:
        """Send on the control lane. An answer with a receipt that is pending is said once that is decided."""
        if message.HasField("heartbeat"):
            self._beat = message.heartbeat
        if self.link is not None and all(receipt.status for receipt in message.applied.receipts):
            self.link.send(message)

    def put_on_record(self, message: pb.ToRuntime) -> None:
        """Say what a replay needs; the newest again to each runtime that is started anew: it stores what is missing."""
        self._records.append(message)
        self.say(message)

    def introduce(self, message: pb.ToRuntime) -> None:
        """Say it, and again to each runtime that is started anew: the first may have died before it kept it."""
        self._introduction = message
        self.say(message)

    @property
    def doorbell(self) -> Doorbell:
        return NOTHING if self.link is None else self.link.doorbell

    @property
    def decided(self) -> str:
        """Entry of the newest decision when this trainer began; empty where nobody told."""
        return "" if self.link is None else self.link.decided

    def recall(self, asked: pb.Recall, patience_s: float = RECALL_S) -> list[pb.CommitOrder]:
        """Orders decided since, as the runtime finds them on the logs. Where it dies of that, the next one is asked.

        Before `begin`. RuntimeLostError where none answers: to train on would lose what was acknowledged.
        """
        deadline, self._asked_of, self._is_recalling = time.monotonic() + patience_s, 0, True
        while self.link is not None and self._is_recalling and time.monotonic() < deadline:
            if (self.link.alive or self._start_anew(self.link)) and self.link.num_starts > self._asked_of:
                self._asked_of = self.link.num_starts
                self._recalled.clear()  # of what one has found that died of it nobody knows how much is missing
                self.say(pb.ToRuntime(recall=asked))
            for message in self.link.poll(FLUSH_S):
                self._hear(message)
        if self.link is not None and self._is_recalling:
            raise RuntimeLostError(f"no runtime has told within {patience_s:g} s what was decided since the checkpoint")
        return self._recalled

    def begin(self) -> None:
        """Have the runtime read the logs from now on. Said again to each that is started anew."""
        again = self.boundary.again
        for windows in in_parts(self.windows):
            self.say(pb.ToRuntime(begin=pb.Begin(windows=windows)))
        self.say(pb.ToRuntime(begin=pb.Begin(rounds=list(again))))
        for answer in again.values():
            if answer is not None:
                self.say(pb.ToRuntime(applied=answer))

    def flush_when_due(self, now: float, *, force: bool = False) -> None:
        """Hand over the rows every 32 steps or 250 ms; what the lane has no room for stays and is counted.

        `now` is the monotonic time in seconds. Then it is seen, too, that the runtime has died.
        """
        if self.link is None:
            self.flush_at = math.inf
            self.rows.settle()
        if self.link is None or not (force or self.rows.num_fresh >= FLUSH_STEPS or now >= self.flush_at):
            return
        self.flush_at = now + FLUSH_S
        while self.link.rows_lane_free() and self.rows.num_fresh and (table := self.rows.table()) is not None:
            self.link.send_rows(pb.ToRuntime(rows=table))
        self.rows.settle()  # what the lane has no room for
        if not self.link.alive or self.rows.num_under_way >= FULL:  # of neither rings a doorbell
            self.pump()

    def _may_wait(self, since: float, patience_s: float) -> bool:
        """Whether what was said then may still be stored: not by a runtime that is dead, where none is started anew."""
        if self.link is None or (self.is_hurried and not self.link.alive):
            return False
        return time.monotonic() - since < (min(patience_s, HURRY_S) if self.is_hurried else patience_s)

    def part(self, farewell: pb.Heartbeat, record: pb.RunRecord, patience_s: float = 10.0) -> None:
        """Say the last words and farewell, wait until Redis has them, and hang up.

        Where the runtime is dead by then, or dies of this, another one is started, and is told both; not in a hurry.
        """
        if self.link is None:
            return
        words = [pb.ToRuntime(record=record), pb.ToRuntime(farewell=farewell)]
        try:
            self._say_until_stored(self.link, words, patience_s)
        except TrainingError as error:
            log.error("runtime.failed", why=str(error))
        if not self.report_stored:
            kept = 0 if self.statements is None else self.statements.num_waiting
            unstored = {"rows_unstored": self.rows.unstored, "statements_unstored": kept}
            log.error("report.lost", worker=farewell.worker, **unstored, events_untold=self.rows.events.num)
        self.link.close(HURRY_S if self.is_hurried else CLOSE_S)

    def _say_until_stored(self, link: Lanes, words: Sequence[pb.ToRuntime], patience_s: float) -> None:
        told, since = 0, time.monotonic()
        while not self.report_stored and self._may_wait(since, patience_s):
            if link.alive and link.num_starts > told:
                told = link.num_starts
                for message in words:
                    self.say(message)
            self.pump(FLUSH_S)

    def store_rows(self, step: int, patience_s: float = 10.0) -> None:
        """Wait until Redis has acknowledged every row, and whatever else was told for good.

        Of events that the last row has no room for, or that came after it, rows are made, of this step: the last one.
        """
        since = time.monotonic()
        while self._has_unstored and self._may_wait(since, patience_s):
            self.rows.tell_rest(step, time.time_ns())
            self.flush_when_due(time.monotonic(), force=True)
            self.pump(0.02)

    @property
    def _has_unstored(self) -> bool:
        return bool(self.rows.unstored or self.rows.events.num or (self.statements and self.statements.num_waiting))

    def _hear(self, message: pb.ToTrainer) -> None:
        match message.WhichOneof("message"):
            case "proposal":
                if (vote := self.boundary.on_proposal(message.proposal)) is not None:
                    self.say(pb.ToRuntime(vote=vote))
            case "commit":
                if (answer := self.boundary.on_commit(message.commit)) is not None:
                    self.say(pb.ToRuntime(applied=answer))
            case "abort":
                self.boundary.on_abort(message.abort)
            case "rows_stored":
                self.rows.stored(message.rows_stored.through_sequence)
            case "statement_stored" if self.statements is not None:
                self.statements.stored(message.statement_stored.number)
            case "report_stored":
                self.report_stored = True
            case "foreseen":
                self.foreseen.append(message.foreseen)
            case "windows":
                self._keep(message.windows.fields)
            case "recalled" if self._is_recalling and self.link is not None and self.link.num_starts == self._asked_of:
                self._recalled += message.recalled.orders
                self._is_recalling = not message.recalled.is_last
            case "recalled":
                self._inherit(message.recalled.orders)
            case "ready":
                self._backoff_s = FLUSH_S
            case "failed":
                raise TrainingError(message.failed.sentence)

    def _inherit(self, orders: Iterable[pb.CommitOrder]) -> None:
        """What was decided since, on a vote of the trainer before this one; a runtime that is new may tell it again."""
        self.boundary.recall(order for order in orders if order.commit.round not in self.boundary.again)

    def _keep(self, windows: Mapping[str, bytes]) -> None:
        for name, value in windows.items():
            if value:
                self.windows[name] = value
            else:
                self.windows.pop(name, None)

    def _revive(self, link: Lanes) -> None:
        if not self._start_anew(link):
            return
        if self._introduction is not None:  # first: it is to know whom it reads for
            self.say(self._introduction)
        self.begin()
        for record in self._records:
            self.say(record)
        if self.statements is not None:
            self.statements.say_again()
        self.rows.send_again()

    def _start_anew(self, link: Lanes) -> bool:
        """Start another runtime, unless the last one was just started; it hears first how far the trainer has come."""
        if time.monotonic() < self._revive_at:
            return False
        log.warning("runtime.lost", starts=link.num_starts, backoff_s=self._backoff_s)
        self._backoff_s = min(LONGEST_BACKOFF_S, self._backoff_s * 2)
        self._revive_at = time.monotonic() + self._backoff_s
        link.start()
        if self._beat is not None:  # the next one may be a long step away
            beat = repeated(self._beat)
            beat.round_applied, beat.round_met = self.boundary.round_applied, self.boundary.round_met
            link.send(pb.ToRuntime(heartbeat=beat))
        return True
