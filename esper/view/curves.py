"""What a run's plots show: losses, alphas and growth over steps; rates and latencies over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.kinds import Role
from esper.leyline.lifecycle import ACTIVE_STAGES, BLENDED_STAGES, BLENDING, CULLED, EMBARGOED, FOSSILIZED, short
from esper.leyline.seal import Opened
from esper.view.line import Line
from esper.view.orders import Order
from esper.view.workers import NOT_BEGUN, SILENT_MS

Plot: TypeAlias = Literal["loss", "alpha", "rate", "latency", "growth"]
PLOTS: tuple[Plot, ...] = ("loss", "alpha", "rate", "latency", "growth")
ALL_RANKS, VALIDATION = "all ranks", "validation"
BESIDE, GROWN = "beside the model", "part of the model"
MOST_LINES, MOST_MARKS = 32, 256
BIN_S = 1.0
FOLLOWED = {EMBARGOED: CULLED}
"""What a seed was embargoed for: it is shown so from the same step on."""
_MARKED = {BLENDING, FOSSILIZED, CULLED, EMBARGOED}
_GRAFTED = pb.ReceiptStatus.RECEIPT_APPLIED


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the life of a seed that the loss may show."""

    step: int
    seed_id: str
    stage: str


@dataclass
class Bin:
    """Aggregates of a second or more: since when, from which number on, and what they were made of."""

    began_s: float
    began_sequence: int
    last_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def rates(self, ended_s: float, next_sequence: int) -> dict[str, float]:
        """A second, until the aggregate of this number came."""
        there = self.counts["global"]
        all_of_them = max(there, next_sequence - self.began_sequence)
        return {name: count * all_of_them / there / (ended_s - self.began_s) for name, count in self.counts.items()}


@dataclass
class Curves:
    """Lines by plot and name. Sizes of seeds are those that G0 measured when they germinated, in bytes; growth is
    unknown, and no point, while that of a seed which counts is."""

    lines: dict[Plot, dict[str, Line]] = field(default_factory=lambda: {name: {} for name in PLOTS})
    marks: list[Mark] = field(default_factory=list)
    _drawn_by: str = ""  # the first worker that goes on: all ranks change their seeds at the same step
    _drawn_s: float = 0.0
    _incarnations: dict[str, int] = field(default_factory=dict)
    _stages: dict[str, tuple[int, int]] = field(default_factory=dict)  # since which step
    _sizes: dict[str, float] = field(default_factory=dict)
    _bin: Bin = field(default_factory=lambda: Bin(0.0, 0))

    def note(self, opened: Opened) -> None:
        """Take a message; what has no place in a plot is passed over."""
        at_s = entry_ms(opened.entry_id) / 1000
        match opened.message:
            case pb.Heartbeat() as beat:
                self._note_heartbeat(beat, at_s)
            case pb.SystemStatePacket() as state:
                self._note_state(state, at_s)
            case pb.AggregatedTelemetry() as aggregate if opened.header.role is Role.GLOBAL:
                self._note_aggregate(aggregate, at_s)
            case pb.BarrierCommit() as commit:
                self._add("latency", "proposal to commit", at_s, commit.latency_ms)
            case pb.RunRecord() as record:
                for outcome in record.judged.outcomes:  # of requests: the seed's id stands in place of a command's
                    self.note_outcome(outcome.command_id, outcome)

    def note_order(self, order: Order) -> None:
        """What became of a command: what a seed weighs, and when it changed its stage."""
        for receipt in order.outcomes.values():
            self.note_outcome(order.seed_id, receipt)

    def note_outcome(self, seed_id: str, receipt: pb.CommandReceipt) -> None:
        """What a rank answered for a seed. One that is known already changes nothing."""
        if not seed_id or receipt.status != _GRAFTED:
            return
        if "seed_bytes" in receipt.evidence:
            self._sizes[seed_id] = receipt.evidence["seed_bytes"]
        if receipt.stage:
            self._change(seed_id, receipt.stage, receipt.step)

    def _note_heartbeat(self, beat: pb.Heartbeat, at_s: float) -> None:
        if beat.step <= NOT_BEGUN:  # from where it goes on is not known yet
            return
        if self._incarnations.get(beat.worker, beat.incarnation) != beat.incarnation:
            self.go_back(beat.worker, beat.world_size, beat.step)
        self._incarnations[beat.worker] = beat.incarnation
        self._add("loss", beat.worker, beat.step, beat.loss)
        self._note_seeds(beat.worker, at_s, beat.step, beat.seeds)

    def go_back(self, worker: str, world_size: int, step: int) -> None:
        """A process that begins before this step trains what is behind it again. Its group does so with it; other
        replicas, worlds of one, go on."""
        self._incarnations.setdefault(worker, 0)
        is_one_of_many = world_size == 1 and len(self._incarnations) > 1
        lines = [line for name, line in self.lines["loss"].items() if name == worker or not is_one_of_many]
        if not is_one_of_many or worker == self._drawn_by:
            lines += [*self.lines["alpha"].values(), *self.lines["growth"].values()]
            self.marks = [mark for mark in self.marks if mark.step < step]
            self._stages = {seed: told for seed, told in self._stages.items() if told[0] < step}
        for line in lines:
            line.cut(step)

    def _note_state(self, state: pb.SystemStatePacket, at_s: float) -> None:
        worker, step = state.source_subsystem, state.global_step
        self._add_later("loss", worker, step, state.training_loss)
        self._add_later("loss", VALIDATION, step, state.validation_loss)
        self._note_seeds(worker, at_s, step, state.seed_states)

    def _note_aggregate(self, aggregate: pb.AggregatedTelemetry, at_s: float) -> None:
        loss = aggregate.metrics.get("loss")
        if loss is not None and loss.count:
            self._add_later("loss", ALL_RANKS, aggregate.max_step, loss.mean)
        self._note_rates(aggregate, at_s)

    def _note_rates(self, aggregate: pb.AggregatedTelemetry, at_s: float) -> None:
        """Aggregates are numbered: where some were left out, those there are stand for them."""
        last = self._bin
        if at_s < last.last_s:  # read again
            return
        if at_s >= last.began_s + BIN_S:
            for name, rate in last.rates(at_s, aggregate.sequence).items():
                self._add("rate", name, last.began_s, rate)
            self._bin = last = Bin(at_s, aggregate.sequence)
        last.last_s = at_s
        last.counts.update({"packets": aggregate.num_packets, "regional": aggregate.num_messages, "global": 1})

    def _note_seeds(self, worker: str, at_s: float, step: int, seeds: Iterable[pb.SeedState]) -> None:
        if self._drawn_by and worker > self._drawn_by and at_s - self._drawn_s < SILENT_MS / 1000:
            return
        self._drawn_by, self._drawn_s = worker, max(self._drawn_s, at_s)
        for state in seeds:
            if state.stage in BLENDED_STAGES or state.seed_id in self.lines["alpha"]:
                self._add_later("alpha", state.seed_id, step, state.alpha)
            self._change(state.seed_id, state.stage, min(step, state.stage_since_step or step))
        self._add_growth(step)

    def _change(self, seed_id: str, stage: pb.SeedLifecycleStage, step: int) -> None:
        """Answers may be read after the states that came of them: what is older marks its moment and no more."""
        mark = Mark(step, seed_id, short(FOLLOWED.get(stage, stage)))
        if stage in _MARKED and mark not in self.marks:
            self.marks = sorted([*self.marks, mark], key=lambda each: each.step)[-MOST_MARKS:]
        known_step, known = self._stages.get(seed_id, (-1, 0))
        if step >= known_step and stage != known:
            self._stages[seed_id] = (step, stage)
            self._add_growth(step)

    def _add_growth(self, step: int) -> None:
        for name, stages in ((BESIDE, ACTIVE_STAGES), (GROWN, {FOSSILIZED})):
            there = [seed for seed, (_, stage) in self._stages.items() if stage in stages]
            line = self.lines["growth"].setdefault(name, Line())
            if line.ends_before(step + 1):  # two seeds may change at one step
                line.add(step, sum(self._sizes.get(seed, math.nan) for seed in there))

    def _add(self, plot: Plot, name: str, x: float, y: float) -> None:
        lines = self.lines[plot]
        if name not in lines and len(lines) >= MOST_LINES and name not in (ALL_RANKS, VALIDATION):
            if plot != "alpha" or not (over := self._over(x)):
                return
            del lines[over]
        lines.setdefault(name, Line()).add(x, y)

    def _over(self, step: float) -> str:
        """Whose alpha has ended longest ago, to make room for a seed of now; empty: all of them go on."""
        ends = {name: line.points[-1][0] if line.points else -math.inf for name, line in self.lines["alpha"].items()}
        first = min(ends, key=lambda name: ends[name])
        return first if ends[first] < step else ""

    def _add_later(self, plot: Plot, name: str, x: float, y: float) -> None:
        """Unless a point behind it is known: of tiers and ranks that lag behind one another."""
        if self.lines[plot].get(name, Line()).ends_before(x):
            self._add(plot, name, x, y)
