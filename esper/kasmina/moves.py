"""What each operation does to a seed, gate and record included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import nn

from esper.errors import RefusedError, listed
from esper.kasmina.advance import ADVANCING
from esper.kasmina.blend import AlphaSchedule, Phase
from esper.kasmina.breaker import BREAKERS, Breaker, BreakerSettings
from esper.kasmina.config import KasminaConfig
from esper.kasmina.fossil import Fossils
from esper.kasmina.gates.evidence import EvidenceCollector
from esper.kasmina.gates.meter import Meters
from esper.kasmina.gates.ring import LossLevel
from esper.kasmina.gates.rules import Evidence, GateResult, judge
from esper.kasmina.germination.germinate import Findings, agreed
from esper.kasmina.germination.kernels import Kernels
from esper.kasmina.guards import Guards
from esper.kasmina.isolation.hooks import HookCensus, UnfreedMemory
from esper.kasmina.seeds.forgetting import forgotten, require_room
from esper.kasmina.seeds.seed import Moment, Seed
from esper.kasmina.slots.sites import neighbours, put_in_order
from esper.kasmina.slots.slot import Slot
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import (
    BLENDING,
    CULLED,
    DORMANT,
    EMBARGOED,
    FOSSILIZED,
    GERMINATED,
    PROBATIONARY,
    RESETTING,
    SHADOWING,
    TERMINATED,
    TRAINING,
    VACATED_STAGES,
    gate_of,
    target_stage,
)

AUTO = "auto"  # the parameter of a command; no blueprint may have one of that name
Op = pb.SeedOperation
Reason = pb.ReasonCode
APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED


@dataclass
class Outcome:
    """What became of an operation on this rank: numbers of ReceiptStatus, ReasonCode, stage and gate."""

    status: int
    reason: int = Reason.REASON_NONE
    detail: str = ""
    stage: int = pb.SeedLifecycleStage.SEED_STAGE_UNKNOWN
    gate: int = pb.SeedLifecycleGate.SEED_GATE_UNKNOWN
    evidence: Mapping[str, float] = field(default_factory=dict)
    fossilized: Sequence[nn.Parameter] = ()  # newly part of the host
    culled: bool = False  # the seed's optimizer is to be dropped


class Rulings(Protocol):
    """Whether an operation may be tried, and whether a gate lets it through."""

    def admit(self, *names: str) -> None:
        """RefusedError while one of these breakers is open."""

    def verdict(self, evidence: Evidence, config: KasminaConfig) -> GateResult: ...


@dataclass(frozen=True, slots=True)
class FreshRulings:
    """By this rank's guards, and by the evidence alone."""

    guards: Guards

    def admit(self, *names: str) -> None:
        self.guards.admit(*names)

    def verdict(self, evidence: Evidence, config: KasminaConfig) -> GateResult:
        return judge(evidence, config)


@dataclass
class Moves:
    """Carries operations out, each on a seed whose stage allows it. Knows no messages but the command."""

    collector: EvidenceCollector
    slots: Mapping[str, Slot]
    kernels: Kernels
    known: dict[str, Seed]
    fossils: Fossils
    num_forgotten: int = 0  # seeds that were over
    guards: Guards = field(init=False)
    rulings: Rulings = field(init=False)
    meters: Meters = field(init=False)
    isolation: BreakerSettings = field(init=False)  # of each seed's own breaker

    def __post_init__(self) -> None:
        self.isolation = replace(BREAKERS["isolation"], threshold=self.collector.config.circuit_breaker_threshold)
        self.guards, self.meters = Guards(self.collector, self.known), Meters(self.collector.config)
        self.rulings = FreshRulings(self.guards)
        pool = self.kernels.pool
        self.guards.budget.watch(lambda: pool.num_bytes, pool.clear)

    def carry_out(self, command: pb.SeedCommand, now: Moment) -> Outcome:
        """Raises RefusedError, with nothing changed, where the operation does not apply."""
        command, auto = without_auto(command)
        if command.operation == Op.SEED_OP_GERMINATE:
            return self._germinate(command, now, auto=bool(auto))
        seed = self.seed(command.seed_id)
        target_stage(seed.stage, command.operation)
        outcome = self._operate(seed, command, now)
        seed.auto = seed.auto if auto is None else auto
        return outcome

    def _operate(self, seed: Seed, command: pb.SeedCommand, now: Moment) -> Outcome:
        operation = command.operation
        match operation:
            case Op.SEED_OP_START_TRAINING:
                return self._train(seed, now)
            case Op.SEED_OP_START_GRAFTING:
                return self._graft(seed, command, now)
            case Op.SEED_OP_STABILIZE:
                return self._stabilize(seed, now)
            case Op.SEED_OP_EVALUATE:
                return self._through(seed, operation, PROBATIONARY, self.collector.interface(seed), now)
            case Op.SEED_OP_FOSSILIZE:
                return self._fossilize(seed, now)
            case Op.SEED_OP_CULL:
                return self.cull(seed, now, detail="culled by command")
            case Op.SEED_OP_CANCEL:
                return self.cull(seed, now, detail="cancelled")
            case Op.SEED_OP_RESET:
                return self._reset(seed, now)
            case Op.SEED_OP_TERMINATE:
                return self._enter(seed, TERMINATED, now)
            case Op.SEED_OP_SET_ALPHA_TARGET:
                seed.schedule = self._schedule(command, now, seed.schedule.at(now.step))
                return applied(seed)
            case _:
                raise RefusedError(Reason.REASON_NOT_SUPPORTED, f"operation {operation} is not supported")

    def seed(self, seed_id: str) -> Seed:
        if seed_id not in self.known:
            detail = f"no seed is called {seed_id!r}; known seeds: {listed(self.known)}"
            raise RefusedError(Reason.REASON_UNKNOWN_SEED, detail)
        return self.known[seed_id]

    def cull(self, seed: Seed, now: Moment, *, detail: str) -> Outcome:
        """CULLED, then EMBARGOED in the same step; the slot lets go of the module."""
        slot = self.slots[seed.site]
        if slot.seed is seed:
            slot.settle(None)
        seed.unfreed = UnfreedMemory(seed.module)
        seed.module, seed.complaint, seed.paused = None, None, False
        seed.record(CULLED, now, detail=detail)
        seed.embargo_until_epoch = now.epoch + self.collector.config.embargo_epochs
        seed.record(EMBARGOED, now, detail=f"until epoch {seed.embargo_until_epoch}")
        return Outcome(APPLIED, stage=seed.stage, detail=detail, culled=True)

    # -- the operations ----------------------------------------------------------------------------------------------

    def _germinate(self, command: pb.SeedCommand, now: Moment, *, auto: bool) -> Outcome:
        before = self.known.get(command.seed_id)
        target_stage(before.stage if before else DORMANT, command.operation)
        if before is None:
            require_room(self.known.values(), self.fossils.modules())
        slot = self.kernels.slot(command.site)
        kernel_id = self.kernels.next_id(slot.name, command.blueprint_id, command.parameters)
        self._vacant(slot)
        self.rulings.admit("kernel", "memory")
        kernel = self.kernels.load_kernel(kernel_id)
        assert isinstance(kernel.findings, Findings)
        evidence = agreed(self.collector, self.kernels.blueprints[command.blueprint_id], kernel.findings)
        self.guards.note("kernel", failed=bool(evidence.fault))
        self.guards.reserve(command.seed_id, int(evidence.seed_bytes or 0))
        seed = self.new_seed(command, slot, kernel_id.generation, now, before)
        fault = kernel.findings.fault
        outcome = self._through(seed, command.operation, GERMINATED, evidence, now, note=fault)
        self.known[seed.seed_id] = seed
        if outcome.status == APPLIED:
            seed.module, slot.generation = kernel.module, kernel_id.generation
            seed.census = HookCensus(slot.module)
            seed.auto = auto
            slot.settle(seed, kernel.findings.prepared)
        self._forget()
        return outcome

    def _forget(self) -> None:
        for seed_id in forgotten(self.known.values(), self.fossils.modules()):
            del self.known[seed_id]
            self.num_forgotten += 1

    def new_seed(
        self, command: pb.SeedCommand, slot: Slot, generation: int, now: Moment, before: Seed | None = None
    ) -> Seed:
        """DORMANT, in no slot yet."""
        device = slot.shape.device if slot.shape else torch.device("cpu")
        return Seed(
            seed_id=command.seed_id,
            site=slot.name,
            blueprint_id=command.blueprint_id,
            parameters=dict(command.parameters),
            stage=DORMANT,
            generation=generation,
            alpha=torch.zeros((), device=device),
            meter=self.meters.new(device),
            breaker=Breaker(self.isolation, self.collector.clock),
            history=before.history if before else [],
            records_dropped=before.records_dropped if before else 0,
            gates_dropped=before.gates_dropped if before else 0,
            germinated_epoch=now.epoch,
        )

    def _vacant(self, slot: Slot) -> None:
        for seed in self.known.values():
            if seed.site == slot.name and seed.stage not in VACATED_STAGES:
                raise RefusedError(Reason.REASON_SITE_TAKEN, f"site {slot.name!r} holds seed {seed.seed_id!r}")

    def _train(self, seed: Seed, now: Moment) -> Outcome:
        if not seed.trainable():
            detail = f"seed {seed.seed_id!r} of blueprint {seed.blueprint_id} has no parameters to train; cull it"
            raise RefusedError(Reason.REASON_NOT_SUPPORTED, detail)
        self.rulings.admit("optimizer")
        return self._enter(seed, TRAINING, now)

    def _graft(self, seed: Seed, command: pb.SeedCommand, now: Moment) -> Outcome:
        schedule = self._schedule(command, now, 0.0)
        self.rulings.admit("recompile")
        evidence = self.collector.gradient(self.slots[seed.site], seed)
        outcome = self._through(seed, command.operation, BLENDING, evidence, now)
        if outcome.status == APPLIED:
            seed.schedule = schedule
            seed.set_alpha(now.step)
            seed.meter.start_blending()
            seed.losses_seen, seed.graphs_seen = self.collector.losses.total, None
            seed.loss_before, seed.phase = LossLevel.of(self.collector.losses.window()), Phase.LOW
        return outcome

    def _stabilize(self, seed: Seed, now: Moment) -> Outcome:
        evidence = self.collector.stability(self.slots[seed.site], seed, now.step)
        recompiles, allowed = evidence.recompiles, self.collector.config.recompiles_max
        self.guards.note("recompile", failed=recompiles is not None and recompiles > allowed)
        return self._through(seed, Op.SEED_OP_STABILIZE, SHADOWING, evidence, now)

    def _schedule(self, command: pb.SeedCommand, now: Moment, start: float) -> AlphaSchedule:
        given = dict(command.parameters)
        target = given.pop("alpha", 1.0)
        steps = given.pop("steps", float(self.collector.config.blend_steps))
        if given:
            raise RefusedError(Reason.REASON_UNKNOWN_PARAMETER, f"{min(given)!r} is unknown; expected alpha, steps")
        if not 0.0 <= target <= 1.0:
            raise RefusedError(Reason.REASON_OUT_OF_RANGE, f"alpha is {target:g}; expected a number in [0, 1]")
        if not 0 <= steps <= 1e9:
            raise RefusedError(Reason.REASON_OUT_OF_RANGE, f"steps is {steps:g}; expected a number in [0, 1e9]")
        return AlphaSchedule(start, target, now.step, int(steps), command.alpha_curve)

    def _fossilize(self, seed: Seed, now: Moment) -> Outcome:
        evidence = self.collector.impact(self.slots[seed.site], seed)
        slot, joined = self.slots[seed.site], list[nn.Parameter]()
        outcome = self._through(seed, Op.SEED_OP_FOSSILIZE, FOSSILIZED, evidence, now)
        if outcome.status == APPLIED:
            slots = neighbours(self.slots, slot)
            joined = self.fossils.join(
                slot, seed, foldable=all(each.seed is None for each in slots[: slots.index(slot)])
            )
            put_in_order(slots[slots.index(slot) :])
            slot.settle(None)
            seed.module, seed.complaint = None, None
        return replace(outcome, fossilized=joined)

    def _reset(self, seed: Seed, now: Moment) -> Outcome:
        if now.epoch < seed.embargo_until_epoch:
            detail = f"epoch is {now.epoch}; the embargo ends at epoch {seed.embargo_until_epoch}"
            raise RefusedError(Reason.REASON_EMBARGOED, detail)
        evidence = self.collector.reset(self.slots[seed.site], seed)
        # Else it stays EMBARGOED, from where RESET can be tried again.
        if self.rulings.verdict(evidence, self.collector.config).passed:
            seed.record(RESETTING, now)
        return self._through(seed, Op.SEED_OP_RESET, DORMANT, evidence, now)

    # -- entering a stage --------------------------------------------------------------------------------------------

    def _enter(self, seed: Seed, stage: pb.SeedLifecycleStage, now: Moment) -> Outcome:
        seed.record(stage, now)
        self.slots[seed.site].walk_due = True
        return applied(seed)

    def _through(
        self,
        seed: Seed,
        operation: pb.SeedOperation,
        stage: pb.SeedLifecycleStage,
        evidence: Evidence,
        now: Moment,
        note: str = "",
    ) -> Outcome:
        """Enter `stage` if the gate lets it; otherwise hold, or cull where the evidence is hopeless."""
        gate, result = gate_of(operation), self.rulings.verdict(evidence, self.collector.config)
        detail = "; ".join(part for part in (result.detail, self.collector.take_fault(), note) if part)
        entered = stage if result.passed else seed.stage
        seed.record(entered, now, gate=gate, passed=result.passed, evidence=result.evidence, detail=detail)
        seed.gate_score = result.score
        if result.passed:
            self.slots[seed.site].walk_due = True
            return Outcome(APPLIED, stage=stage, gate=gate, evidence=result.evidence, detail=detail)
        seed.attempts, seed.tried_at = seed.attempts + 1, now.step
        return self._failed(seed, gate, result, detail, now)

    def _failed(self, seed: Seed, gate: pb.SeedLifecycleGate, result: GateResult, detail: str, now: Moment) -> Outcome:
        culled = (result.non_finite or result.hopeless) and seed.module is not None
        if culled:
            self.cull(seed, now, detail=detail)
        return Outcome(
            FAILED,
            Reason.REASON_NON_FINITE if result.non_finite else Reason.REASON_GATE_FAILED,
            detail,
            seed.stage,
            gate,
            result.evidence,
            culled=culled,
        )


def without_auto(command: pb.SeedCommand) -> tuple[pb.SeedCommand, bool | None]:
    """The command without its parameter `auto`, and what that said: 1 lets the policy advance the seed, 0 holds it."""
    if AUTO not in command.parameters or command.operation not in {Op.SEED_OP_GERMINATE, *ADVANCING}:
        return command, None
    value = command.parameters[AUTO]
    if value not in (0.0, 1.0):
        raise RefusedError(Reason.REASON_OUT_OF_RANGE, f"{AUTO} is {value:g}; expected 0 or 1")
    rest = pb.SeedCommand()
    rest.CopyFrom(command)
    del rest.parameters[AUTO]
    return rest, bool(value)


def applied(seed: Seed, detail: str = "") -> Outcome:
    return Outcome(APPLIED, stage=seed.stage, detail=detail)
