"""Each worker of a run: its newest heartbeat, how fast it goes, and how far it is behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from esper.leyline import contracts as pb
from esper.leyline.heartbeats import UNKNOWN, Sealed, is_older
from esper.view.naming import by_value
from esper.view.window import WINDOW_MS, RateWindow

SILENT_MS = 5_000
"""A worker of which nothing is heard for so long is given up by the run (ESPER_SILENCE_S)."""
NOT_BEGUN = 1
"""Step that a process names before it has trained one, or has gone back to its checkpoint."""
OBEYED = ("commands", "optimizer", "decisions")
"""What a worker reads to act on it."""
State = Literal["ended", "evicted", "silent", "training", "away", "compile", "checkpoint", "evaluate", "paused"]
"""away: its runtime repeats the heartbeat of a trainer that lives and is inside a long step."""
BUSY: Mapping[int, State] = {
    pb.BusyWith.BUSY_COMPILE: "compile",
    pb.BusyWith.BUSY_CHECKPOINT: "checkpoint",
    pb.BusyWith.BUSY_EVALUATE: "evaluate",
    pb.BusyWith.BUSY_PAUSED: "paused",
}
TROUBLED = frozenset[State]({"silent", "evicted"})
GONE = TROUBLED | {"ended"}


@dataclass
class Worker:
    """One worker, as its newest heartbeat shows it."""

    beat: pb.Heartbeat
    heard_ms: int  # by the time of the entry, which is the server's
    sealed: Sealed = UNKNOWN
    report: pb.WorkerReport | None = None  # its last words
    lag: int | None = None  # entries that its groups have not read yet; None: unknown, or no group
    is_evicted: bool = False
    _window: RateWindow = field(default_factory=RateWindow)
    _measured_ms: int = 0  # by the server's time, when the window was added to

    @property
    def name(self) -> str:
        return self.beat.worker

    def steps_per_s(self, now_ms: int) -> float | None:
        """Over the newest ten seconds; None: it is gone, or says nothing of its steps for as long."""
        is_old = now_ms - self._measured_ms > WINDOW_MS
        return None if is_old or self.state(now_ms) in GONE else self._window.per_s("steps")

    def samples_per_s(self, now_ms: int) -> float | None:
        """Examples trained on; None: as above, or the training script does not say how many."""
        is_told = self.beat.examples and self.steps_per_s(now_ms) is not None
        return self._window.per_s("examples") if is_told else None

    def state(self, now_ms: int) -> State:
        """In one word: what it is at, or why it is not."""
        if self.report is not None:
            return "ended"
        if self.is_evicted:
            return "evicted"
        if now_ms - self.heard_ms > SILENT_MS:
            return "silent"
        return BUSY.get(self.beat.busy, "away" if self.beat.repeated else "training")

    def note(self, beat: pb.Heartbeat, entry_ms: int, sealed: Sealed = UNKNOWN) -> bool:
        """Take a heartbeat unless it is older than the newest one; whether it was taken."""
        if is_older(beat, sealed, self.beat, self.sealed):
            return False
        self.sealed = sealed
        if beat.time_ns < self.beat.time_ns:  # its clock was set back
            self._window = RateWindow()
        if beat.incarnation != self.beat.incarnation:
            self._window, self.report, self.is_evicted = RateWindow(), None, False
        self.beat, self.heard_ms = beat, max(entry_ms, self.heard_ms)
        if beat.HasField("report"):
            self.report = beat.report
        if not beat.repeated and beat.step > NOT_BEGUN:
            self._window.note(beat.time_ns // 1_000_000, {"steps": beat.step, "examples": beat.examples})
            self._measured_ms = self.heard_ms
        return True


@dataclass
class Workers:
    """By name. Knows nothing of seeds."""

    by_name: dict[str, Worker] = field(default_factory=dict)

    def note(self, beat: pb.Heartbeat, entry_ms: int, sealed: Sealed = UNKNOWN) -> bool:
        """Whether the heartbeat is the newest of its worker."""
        known = self.by_name.get(beat.worker)
        if known is None:
            known = self.by_name[beat.worker] = Worker(beat, entry_ms, sealed)
        return known.note(beat, entry_ms, sealed)

    def note_abort(self, abort: pb.BarrierAbort) -> None:
        """Mark whom it evicts, unless another process goes by that name by now."""
        for evicted in abort.evicted:
            known = self.by_name.get(evicted.worker)
            if known is not None and evicted.incarnation in (0, known.beat.incarnation):
                known.is_evicted = True

    def note_lags(self, lags: Mapping[tuple[str, str], int | None]) -> None:
        """What each group has yet to read, by stream and group; a worker's groups go by its name."""
        for name, worker in self.by_name.items():
            mine = [lag for (stream, group), lag in lags.items() if group == name and stream in OBEYED]
            worker.lag = None if not mine or None in mine else sum(lag for lag in mine if lag is not None)

    @property
    def ordered(self) -> list[Worker]:
        """By rank, then by name."""
        return sorted(self.by_name.values(), key=lambda worker: (worker.beat.rank, by_value(worker.name)))

    @property
    def world_size(self) -> int:
        """Ranks of the process group; or the replicas that are known, each of which is the whole of its world."""
        ranks = max((worker.beat.world_size for worker in self.by_name.values()), default=0)
        return ranks if ranks > 1 else len(self.by_name)

    def troubled(self, now_ms: int) -> dict[State, int]:
        """How many are silent, and how many were sent away."""
        states = Counter(worker.state(now_ms) for worker in self.by_name.values())
        return {state: states[state] for state in sorted(TROUBLED, reverse=True) if states[state]}

    @property
    def are_done(self) -> bool:
        """Whether each that was heard of has said its last words, but for those that were sent away."""
        ended = [worker.report is not None for worker in self.by_name.values() if not worker.is_evicted]
        return bool(ended) and all(ended)

    @property
    def is_paused(self) -> bool:
        """Whether the whole run is held: each worker that goes on says so."""
        going = [worker for worker in self.by_name.values() if worker.report is None and not worker.is_evicted]
        return bool(going) and all(worker.beat.busy == pb.BusyWith.BUSY_PAUSED for worker in going)
