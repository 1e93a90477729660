"""Holds a model's slots and seeds, and carries out what a run decides about them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from esper.errors import RefusedError
from esper.kasmina.advance import ADVANCING, wish
from esper.kasmina.breaker import OPEN, Breaker
from esper.kasmina.config import KasminaConfig
from esper.kasmina.fossil import Fossils, newest_generation
from esper.kasmina.gates.evidence import ALONE, EvidenceCollector, Sources
from esper.kasmina.gates.feedback import feed_back
from esper.kasmina.gates.ring import GraphCounts, Ring
from esper.kasmina.germination.kernels import Kernels
from esper.kasmina.germination.prefetch import Prefetch
from esper.kasmina.guards import StepFault
from esper.kasmina.isolation.graph import Measured, batched_norms, is_at_hand, sent
from esper.kasmina.isolation.monitor import HostTensors
from esper.kasmina.moves import Moves, Outcome, Rulings, applied
from esper.kasmina.seeds.durable import DurableSeeds
from esper.kasmina.seeds.seed import Moment, Seed, compiled_graphs
from esper.kasmina.seeds.snapshot import Kept, keep, put_back
from esper.kasmina.seeds.state_tensor import GPUStateTensor
from esper.kasmina.seeds.states import States
from esper.kasmina.slots.bypass import Bypasses, show_hooks_to_compiler
from esper.kasmina.slots.module_replacement import ReplacedModules, detail_of
from esper.kasmina.slots.naming import undistributed
from esper.kasmina.slots.sites import slots_at
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.kernels.budget import Budget
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, DORMANT, target_stage


class Executor:
    """The seeds of one rank. Every rank applies the same operations before the same steps; nothing here is random."""

    def __init__(
        self,
        model: nn.Module,
        sites: Sequence[str],
        *,
        run_id: str,
        settings: KasminaConfig | None = None,
        blueprints: Mapping[str, Blueprint] = BLUEPRINTS,
        sources: Sources = ALONE,
    ) -> None:
        self.settings = settings or KasminaConfig()
        self.step, self.epoch = 0, 0
        self.is_dormant = False  # since this step began: no slot has a seed, or a hook that could have been missed
        host = undistributed(model)  # evaluation on one rank alone must run no collective
        show_hooks_to_compiler()
        self._host = host
        self._slots = slots_at(host, sites, self.settings)
        self._watched = HostTensors(host)
        for slot in self._slots.values():
            slot.watched, slot.generation = self._watched, newest_generation(slot.module)
        self.in_emergency: Callable[[str], object] = lambda reason: None  # a breaker opened: save what can be saved
        self.on_displaced: Callable[[str, str], object] = lambda site, detail: None  # a seed there would do nothing
        self._bypasses = Bypasses(host, is_alone=sources.reduce is None)
        self._replaced = ReplacedModules(host, self._slots.values())
        device = next((parameter.device for parameter in host.parameters()), torch.device("cpu"))
        self._losses = Ring(self.settings.window, device)
        self._known: dict[str, Seed] = {}
        self._fossils = Fossils(host)
        collector = EvidenceCollector(
            host,
            self.settings,
            sources.reduce,
            sources.holdout if sources.holdout and sources.holdout.batches else None,
            sources.clock,
            self._losses,
            GraphCounts(self.settings.window // self.settings.read_every + 2),
        )
        self._collector = collector
        self.kernels = Kernels(run_id, collector, self._slots, blueprints)
        self._moves = Moves(collector, self._slots, self.kernels, self._known, self._fossils)
        places = {name: place for place, name in enumerate(self._slots)}
        self._states = States(self.settings, blueprints, places, self._moves.meters.ledgers)
        self.prefetch = Prefetch(self.kernels, self._moves.guards.up_to_date)
        self._kept: list[weakref.ref[Kept]] = []

    def follow_optimizers(self, has_optimizer: Callable[[str], bool]) -> None:
        """Tell whether anything holds optimizer state for a seed; without it G5 is unmeasured, and fails."""
        self._collector.has_optimizer = has_optimizer

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """This rank's, by name: what they say is asked of the coordinator, or agreed on, before anything follows."""
        return self._moves.guards.breakers

    @property
    def rulings(self) -> Rulings:
        """By which operations are admitted and gates judged; a replay has those of its run."""
        return self._moves.rulings

    @rulings.setter
    def rulings(self, rulings: Rulings) -> None:
        self._moves.rulings = rulings

    @property
    def sites(self) -> list[str]:
        return list(self._slots)

    @property
    def seeds(self) -> Mapping[str, Seed]:
        """Every seed but the dormant ones, which their slots have forgotten."""
        return {seed_id: seed for seed_id, seed in self._known.items() if seed.stage != DORMANT}

    @property
    def num_forgotten(self) -> int:
        """Seeds that were over and are known no more; the newest 64 of those are."""
        return self._moves.num_forgotten

    def learning(self) -> Mapping[str, Seed]:
        """Seeds whose own optimizers step now."""
        return {seed_id: seed for seed_id, seed in self._known.items() if seed.learns}

    def states(self) -> list[pb.SeedState]:
        """Of every seed that is known. Waits for the device, once."""
        seeds, now = list(self._known.values()), Moment(self.step, self.epoch)
        return [seed.state(now, row) for seed, row in zip(seeds, self._states.read(seeds, now), strict=True)]

    def state_tensors(self) -> list[GPUStateTensor]:
        """Of each device, up to date, a seed in the row of its meter; without waiting for the device."""
        self._states.write(self._known.values(), Moment(self.step, self.epoch))
        return [ledger.states for ledger in self._moves.meters.ledgers]

    def requests(self) -> list[pb.SeedRequest]:
        """Culls that this rank has reason to ask for, and what the policy wishes; repeated until they are decided."""
        culls = [seed.complaint for seed in self._known.values() if seed.complaint is not None]
        wishes = [wish(seed, self.step, self.epoch, self.settings) for seed in self._known.values()]
        return [*culls, *(request for request in wishes if request is not None)]

    def reports(self) -> list[pb.SeedReport]:
        return [seed.report() for seed in self._known.values()]

    def on_breaker(self, opened: Callable[[str], object]) -> None:
        """Have it called with the name of a breaker of this rank that opens."""
        self._moves.guards.opened = opened

    def on_filling(self, told: Callable[[Budget], object]) -> None:
        """Have it called with the budget of seeds when it comes to 85 % of its limit."""
        budget = self._moves.guards.budget
        budget.filling = lambda: told(budget)

    # -- what a step brings ------------------------------------------------------------------------------------------

    def begin_step(self, step: int, epoch: int) -> None:
        """Move alphas and look after the seeds. Waits for the device every `read_every` steps, if any seed lives."""
        self.step, self.epoch = step, epoch
        walks = step % self.settings.walk_every == 0
        if walks:
            self._watched.lapse()
            for slot in self._replaced.look():
                self.on_displaced(slot.name, detail_of(slot))
        for slot in self._slots.values():
            if not slot.resting:
                break
        else:  # the whole of most steps
            self.is_dormant = not (self._known and self.learning())
            return
        self.is_dormant = False
        self._watched.refresh()
        self._moves.meters.begin_step()
        awake = [slot for slot in self._slots.values() if not slot.resting]
        living = [slot.seed for slot in awake if slot.seed is not None]
        for seed in living if walks else ():
            seed.look()
        for slot in awake:
            slot.step = step
            slot.look_back()
            slot.rest()
            slot.walk_due |= walks
        self._bypasses.begin_step(awake)
        for seed in living:
            seed.set_alpha(step)
            self._look_after(seed)
        if living and step % self.settings.read_every == 0:
            self._collector.graphs.note(step, compiled_graphs())
            self._read_strikes()
            feed_back(self._collector, living, step)

    def end_step(self) -> None:
        """What goes back from here on, before the next one begins, is of no step."""
        self._moves.meters.end_step()

    def next_due(self) -> int:
        """The first step after this one that begin_step() has something to do for, unless a seed comes."""
        every = self.settings.walk_every if self.is_dormant else 1
        return self.step + every - self.step % every

    def note_loss(self, loss: Tensor | float) -> None:
        """Once per step; a tensor stays on its device: nothing is read."""
        self._losses.add(loss)

    def take_losses(self, losses: list[float]) -> None:
        """Of several steps, in their order; the list is empty then."""
        self._losses.extend(losses)
        losses.clear()

    def observe(self, host_gradients: Iterable[Tensor], step: int) -> dict[str, Measured]:
        """Once per optimizer step, after the seeds' gradients were averaged and before the seeds step.

        Returns what was found of the seeds, by id, where that waits for no device: whoever clips wants the same.
        """
        seeds = list(self.learning().values())
        gradients = list(host_gradients) if seeds else []
        if not gradients:
            return {}
        groups = [gradients, *(seed.gradients() for seed in seeds)]
        norms = batched_norms(groups)
        for ledger in self._moves.meters.ledgers:
            here = {seed.meter.row: at for at, seed in enumerate(seeds, 1) if seed.meter.ledger is ledger}
            measured = {row: at for row, at in here.items() if groups[at]}
            ledger.close_step(norms[0], here, [*measured], norms[sent([*measured.values()], norms.device)])
        if not is_at_hand(norms):
            return {}
        known = zip(seeds, groups[1:], norms.tolist()[1:], strict=True)
        return {seed.seed_id: Measured(group, norm) for seed, group, norm in known}

    def note_steps(self, faults: Sequence[StepFault]) -> None:
        """What the seeds' optimizers could not do in this step. Asks for a cull at once, or at the third in a row."""
        for fault in faults:
            self._moves.guards.note("optimizer", failed=True)
            if fault.raised or fault.num_in_row >= self.settings.circuit_breaker_threshold:
                reason = pb.ReasonCode.REASON_BREAKER_OPEN if fault.raised else pb.ReasonCode.REASON_NON_FINITE
                self._known[fault.seed_id].complain(reason, fault.detail)
        if not faults:
            self._moves.guards.note("optimizer", failed=False)

    def bypassed(self) -> list[str]:
        """Sites whose slots the last backward's forwards went past; call once per optimizer step, gradients present."""
        return self._bypasses.found(self._slots.values())

    def _look_after(self, seed: Seed) -> None:
        if seed.breaker.state == OPEN and seed.complaint is None:
            detail = f"{seed.violations} isolation violations, the last one: {seed.violation}"
            seed.complain(pb.ReasonCode.REASON_BREAKER_OPEN, detail)
            self.in_emergency(f"{seed.seed_id}: {detail}")
        settled = seed.blends and seed.graphs_seen is None
        # Entering BLENDING may compile once; what comes after that must not.
        if settled and (seed.stage != BLENDING or self.step >= seed.stage_since_step + self.settings.read_every):
            seed.graphs_seen = compiled_graphs()

    def _read_strikes(self) -> None:
        limit, seeds = self.settings.circuit_breaker_threshold, list(self._known.values())
        for seed, row in zip(seeds, self._states.read(seeds, Moment(self.step, self.epoch)), strict=True):
            strikes, non_finite = row.figures.strikes, row.figures.non_finite
            if strikes > limit and self._slots[seed.site].seed is seed:
                reason = pb.ReasonCode.REASON_NON_FINITE if non_finite else pb.ReasonCode.REASON_BREAKER_OPEN
                size = f"{non_finite:g} samples not finite, the rest beyond {10 * self.settings.rho_max:g} * norm(h)"
                seed.complain(reason, f"{strikes:g} forwards gated away ({size}); at most {limit}")

    # -- what a run decides ------------------------------------------------------------------------------------------

    def apply(self, command: pb.SeedCommand, step: int, epoch: int) -> Outcome:
        """Carry out a committed command between two steps. All ranks call it alike; a refusal changes nothing."""
        try:
            return self._forgotten(self._moves.carry_out(command, Moment(step, epoch)), command.seed_id)
        except RefusedError as error:
            return self._refused(command.seed_id, error)

    def request(self, request: pb.SeedRequest, step: int, epoch: int) -> Outcome:
        """Carry out what some rank asked for and the coordinator decided: a cull, or the next stage of an auto seed."""
        try:
            if request.operation in ADVANCING and self._moves.seed(request.seed_id).auto:
                return self.apply(pb.SeedCommand(seed_id=request.seed_id, operation=request.operation), step, epoch)
            if request.operation != pb.SeedOperation.SEED_OP_CULL:
                detail = "a rank may ask for a cull, or for the next stage of a seed germinated with auto=1"
                raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
            return self._quarantine(request.seed_id, Moment(step, epoch), request.detail)
        except RefusedError as error:
            return self._refused(request.seed_id, error)

    def pause(self, seed_id: str, paused: bool) -> Outcome:
        """A paused seed is the identity and learns nothing; its parameters stay."""
        try:
            seed = self._moves.seed(seed_id)
        except RefusedError as error:
            return self._refused(seed_id, error)
        seed.paused = paused
        return applied(seed, "paused" if paused else "resumed")

    def set_breaker(self, command: pb.CircuitBreakerCommand, step: int, epoch: int) -> Outcome:
        """OPEN quarantines the seed, CLOSED forgets its violations."""
        try:
            if command.desired_state == OPEN:
                return self._quarantine(command.seed_id, Moment(step, epoch), command.rationale or "breaker opened")
            seed = self._moves.seed(command.seed_id)
        except RefusedError as error:
            return self._refused(command.seed_id, error)
        seed.breaker.close()
        seed.violations, seed.complaint, seed.fault = 0, None, ""
        seed.meter.forgive()
        return applied(seed, "violations forgotten")

    def _quarantine(self, seed_id: str, now: Moment, detail: str) -> Outcome:
        seed = self._moves.seed(seed_id)
        target_stage(seed.stage, pb.SeedOperation.SEED_OP_CULL)
        return self._forgotten(self._moves.cull(seed, now, detail=detail), seed_id)

    def _forgotten(self, outcome: Outcome, seed_id: str) -> Outcome:
        """No rollback brings back what was culled, so that snapshots need not hold its memory."""
        if outcome.culled:
            for kept in [kept for each in self._kept if (kept := each()) is not None]:
                kept.pop(seed_id, None)
        return outcome

    def _refused(self, seed_id: str, error: RefusedError) -> Outcome:
        seed = self._known.get(seed_id)
        stage = seed.stage if seed else DORMANT
        return Outcome(pb.ReceiptStatus.RECEIPT_FAILED, error.reason, error.detail, stage)

    def detach(self) -> list[nn.Parameter]:
        """Leave the model to itself: no slot, no seed but the fossils, folded where they can be. For good.

        Returns the parameters that the host lost by it. A fossil that doesn't fold stays a child of its site, with the
        one hook that adds it: torch's fast paths look for hooks, and not for a forward that was overridden.
        """
        for slot in self._slots.values():
            slot.settle(None)
            slot.detach()
        self._bypasses.release()
        self._watched.release()
        return self._fossils.fold()

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> object:
        """Everything that `restore` needs, held as copies on the device."""
        kept = keep(self._known, self.step + 1)
        self._kept = [each for each in self._kept if each() is not None] + [weakref.ref(kept)]
        return kept

    def durable(self) -> DurableSeeds:
        """The seeds as a checkpoint holds them."""
        return DurableSeeds(self._host, self._losses, self._moves, lambda: Moment(self.step + 1, self.epoch))

    def restore(self, kept: object, step: int) -> None:
        """Put the seeds back. Call it before the host's own parameters are put back: fossils made since leave first."""
        assert isinstance(kept, Kept)  # what snapshot() gave
        put_back(kept, self._known, self._slots, self._fossils, Moment(step, self.epoch))
