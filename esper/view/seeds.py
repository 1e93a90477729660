"""Each seed of a run: where it stands, how it came there, and what it was measured to be worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, DORMANT, EMBARGOED, GERMINATED, RESETTING, TERMINATED, short
from esper.view.naming import by_value
from esper.view.workers import SILENT_MS

MOST_MOMENTS = 128
MOST_ROLLBACKS = 64
MOST_SEEDS = 2_048
"""Twice as many as a run has at once: a run forgets those whose slots were closed, and so does its picture."""
G4 = pb.SeedLifecycleGate.SEED_GATE_G4_SYSTEM_IMPACT
_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Gain:
    """Paired: loss with the seed off minus on, on the same held-out examples, with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One entry of a seed's history: a stage that it came to, or a gate that it did not pass."""

    step: int
    stage: pb.SeedLifecycleStage
    gate: pb.SeedLifecycleGate  # that was evaluated; 0: none
    passed: bool
    evidence: Mapping[str, float]
    detail: str
    at_ms: int  # 0: not known

    @property
    def weight(self) -> int:
        """Of two that tell of the same, the one that tells more is kept."""
        return 2 * len(self.evidence) + bool(self.detail) + 2 * bool(self.gate)

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in a history: one step can cull, embargo and reset, and last words have no times."""
        ends = self.passed and self.stage in _ENDS
        return self.step, 1 + _ENDS.index(self.stage) if ends else 0, self.at_ms


@dataclass
class Seed:
    """One seed. `state` is that of the first worker that goes on: ranks change it at the same step."""

    state: pb.SeedState
    shown_by: str = ""
    shown_ms: int = 0
    is_gone: bool = False  # no worker has it any more: its process began anew, without it
    report: pb.FieldReport | None = None
    _moments: dict[_Key, Moment] = field(default_factory=dict)
    _measured: tuple[int, Gain] | None = None  # at which step
    _ordered: Sequence[Moment] | None = ()  # None: not put in order since the last one came
    _began: int = 0

    @property
    def moments(self) -> Sequence[Moment]:
        """Its history, by step. Looked at several times a second, of a thousand seeds: put in order once."""
        if self._ordered is None:
            self._ordered = sorted(self._moments.values(), key=lambda moment: moment.place)
            births = (moment.step for moment in self._ordered if moment.passed and moment.stage == GERMINATED)
            self._began = max(births, default=0)
        return self._ordered

    @property
    def ever_was(self) -> bool:
        """A worker has shown it, or something that it passed was told."""
        return bool(self.state.stage) or any(moment.passed for moment in self._moments.values())

    @property
    def stage(self) -> pb.SeedLifecycleStage:
        """As a worker shows it; else what was answered last. Unknown: nothing was."""
        passed = (moment.stage for moment in reversed(self.moments) if moment.passed and moment.stage)
        return self.state.stage or next(passed, _NO_STAGE)

    @property
    def told_ms(self) -> int:
        """When anything was told of it last."""
        return max([self.shown_ms, *(moment.at_ms for moment in self.moments)])

    @property
    def last_gate(self) -> Moment | None:
        """The gate that was evaluated last in this life."""
        began = self.began
        return next((moment for moment in reversed(self.moments) if moment.gate and moment.step >= began), None)

    @property
    def gain(self) -> Gain | None:
        """As measured last in this life; None: not measured in it."""
        return self._measured[1] if self._measured is not None and self._measured[0] >= self.began else None

    @property
    def began(self) -> int:
        """Step of the newest germination under this id; 0: none is known."""
        return self._began if self.moments else 0

    def note(self, moment: Moment) -> None:
        """Take a moment, or what it tells beyond the one known of the same step.

        Of a gate that ends the seed a receipt names the stage behind it, which is a moment of its own.
        """
        if not moment.passed and moment.stage in _GONE:
            moment = replace(moment, stage=_NO_STAGE)
        key = (moment.step, moment.stage if moment.passed else 0, 0 if moment.passed else moment.gate)
        known = self._moments.get(key)
        if known is None or known.weight < moment.weight:
            self._moments[key] = moment
            self._ordered = None
        if moment.gate == G4 and (gain := gain_of(moment.evidence)) is not None:
            self.note_gain(gain, moment.step)
        while len(self._moments) > MOST_MOMENTS:
            del self._moments[min(self._moments)]
            self._ordered = None

    def note_rollback(self, step: int, told: str) -> None:
        """What a rollback before this step has made of it; no rollback culls."""
        before = [moment for moment in self.moments if moment.passed and moment.step < step]
        undone = f"; it was {short(before[-1].stage)} since step {before[-1].step}" if before else ""
        for key, moment in self._moments.items():
            if moment.step == step and moment.passed and not moment.gate and moment.stage not in _GONE:
                self._moments[key] = replace(moment, detail=f"{told}{undone}")
                self._ordered = None

    def note_gain(self, gain: Gain, step: int) -> None:
        """Take what was measured at a step, unless a later one is known."""
        if self._measured is None or step >= self._measured[0]:
            self._measured = (step, gain)


@dataclass
class Seeds:
    """By id. Knows which command was meant for which seed only by what it is told."""

    by_id: dict[str, Seed] = field(default_factory=dict)
    most: int = MOST_SEEDS
    rollbacks: dict[int, str] = field(default_factory=dict)
    """By the step before which one took effect: to where, and by whom. The newest."""

    def note_rollback(self, step: int, told: str) -> None:
        """Take one; seeds that changed by it are told so, whichever is heard of first."""
        self.rollbacks[step] = told
        if len(self.rollbacks) > MOST_ROLLBACKS:
            del self.rollbacks[min(self.rollbacks)]
        for seed in self.by_id.values():
            seed.note_rollback(step, told)

    def of(self, seed_id: str) -> Seed:
        """The seed of this id, made known where it is not."""
        if seed_id not in self.by_id:
            self._make_room()
            self.by_id[seed_id] = Seed(pb.SeedState(seed_id=seed_id))
        return self.by_id[seed_id]

    def note_states(self, worker: str, states: list[pb.SeedState], entry_ms: int) -> None:
        """What a worker's heartbeat, the newest of it, shows of its seeds."""
        for state in states:
            seed = self.of(state.seed_id)
            if seed.shown_by and worker > seed.shown_by and entry_ms - seed.shown_ms < SILENT_MS:
                continue
            if state.stage != seed.state.stage or state.generation != seed.state.generation:
                seed.note(Moment(state.stage_since_step, state.stage, _NO_GATE, True, {}, "", entry_ms))
                self._explain(seed, state.stage_since_step)
            seed.state, seed.shown_by, seed.shown_ms, seed.is_gone = state, worker, entry_ms, False

    def note_receipt(self, seed_id: str, receipt: pb.CommandReceipt) -> None:
        """What a rank answered to a command, or to a request, for this seed; no stage and no gate tell nothing."""
        if receipt.status not in (_APPLIED, _FAILED) or not (receipt.stage or receipt.gate):
            return
        passed = receipt.status == _APPLIED
        at_ms = receipt.time_ns // 1_000_000
        told = (receipt.gate, passed, dict(receipt.evidence), receipt.detail, at_ms)
        self.of(seed_id).note(Moment(receipt.step, receipt.stage, *told))

    def note_report(self, report: pb.SeedReport) -> None:
        """What a worker's last words tell of a seed."""
        seed = self.of(report.seed_id)
        for record in report.history:
            told = (record.gate, record.passed, dict(record.evidence), record.detail, 0)
            seed.note(Moment(record.step, record.stage, *told))
            self._explain(seed, record.step)
        if report.HasField("paired_gain"):
            gain = Gain(report.paired_gain.mean, report.paired_gain.low, report.paired_gain.high)
            seed.note_gain(gain, max((record.step for record in report.history), default=seed.began))

    def note_field_report(self, report: pb.FieldReport) -> None:
        """What a seed was worth at its end."""
        seed = self.of(report.seed_id)
        seed.report = report
        gain = gain_of({name.removeprefix("gain_"): value for name, value in report.metrics.items()})
        if gain is not None:
            seed.note_gain(gain, report.observed_to_step)

    def miss(self, worker: str, states: Sequence[pb.SeedState], entry_ms: int) -> None:
        """A worker that trains shows these and no others: one that it had, and of which nothing is told, is gone."""
        for seed_id in self.by_id.keys() - {state.seed_id for state in states}:
            seed = self.by_id[seed_id]
            if seed.shown_by in ("", worker) and entry_ms - seed.told_ms >= SILENT_MS and seed.stage not in _OVER:
                seed.shown_by, seed.is_gone = "", True

    def _explain(self, seed: Seed, step: int) -> None:
        if step in self.rollbacks:
            seed.note_rollback(step, self.rollbacks[step])

    def _make_room(self) -> None:
        """Of too many, forget the one that is over and was shown longest ago."""
        if len(self.by_id) >= self.most:
            over = (seed for seed in self.by_id.values() if seed.is_gone or seed.state.stage in _OVER)
            if (oldest := min(over, key=lambda seed: seed.shown_ms, default=None)) is not None:
                del self.by_id[oldest.state.seed_id]

    @property
    def ordered(self) -> list[Seed]:
        """By id, numbers in it by value, but for those that no worker shows: their germination failed."""
        return [self.by_id[seed_id] for seed_id in sorted(self.by_id, key=by_value) if self.by_id[seed_id].ever_was]


def gain_of(evidence: Mapping[str, float]) -> Gain | None:
    """The gain in the evidence of G4; None: not measured."""
    if not {"mean", "low", "high"} <= evidence.keys():
        return None
    return Gain(evidence["mean"], evidence["low"], evidence["high"])


_OVER = (DORMANT, TERMINATED)
_GONE = (CULLED, EMBARGOED, RESETTING)
_ENDS = (*_GONE, DORMANT)  # in which order one step may come to them
_NO_STAGE = pb.SeedLifecycleStage.SEED_STAGE_UNKNOWN
_NO_GATE = pb.SeedLifecycleGate.SEED_GATE_UNKNOWN
_APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED
_FAILED = pb.ReceiptStatus.RECEIPT_FAILED
