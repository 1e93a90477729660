"""Holds a model's slots and seeds, and carries out what a run decides about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from esper.errors import RefusedError, SettingError
from esper.kasmina.breaker import OPEN
from esper.kasmina.bypass import bypassed, show_hooks_to_compiler
from esper.kasmina.config import KasminaConfig
from esper.kasmina.evidence import Witness
from esper.kasmina.fossil import Fossils
from esper.kasmina.kept import keep, put_back
from esper.kasmina.meter import Ring, norm_of
from esper.kasmina.moves import Moment, Moves, Outcome, applied
from esper.kasmina.paired import Holdout
from esper.kasmina.seed import Seed, compiled_graphs
from esper.kasmina.slot import Slot
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, DORMANT, target_stage

WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and of torch.compile


class Executor:
    """The seeds of one rank. Every rank applies the same operations before the same steps; nothing here is random."""

    def __init__(
        self,
        model: nn.Module,
        sites: Sequence[str],
        *,
        run_id: str,
        settings: KasminaConfig | None = None,
        reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
        holdout: Holdout | None = None,
        blueprints: Mapping[str, Blueprint] = BLUEPRINTS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`reduce` makes a tensor its mean over ranks, in place or not, and is called by all ranks alike."""
        self.settings = settings or KasminaConfig()
        self.step, self.epoch = 0, 0
        # Evaluation on one rank alone must run no collective: DDP is left out.
        host = model.module if isinstance(model, DistributedDataParallel) else model
        show_hooks_to_compiler()
        self._host = host
        self._slots = {bare_name(site): Slot(bare_name(site), found(host, site), self.settings) for site in sites}
        device = next((parameter.device for parameter in host.parameters()), torch.device("cpu"))
        self._losses = Ring(self.settings.window, device)
        self._known: dict[str, Seed] = {}
        self._fossils = Fossils(host)
        witness = Witness(
            host, self.settings, reduce, holdout if holdout and holdout.batches else None, clock, self._losses
        )
        self._moves = Moves(run_id, witness, self._slots, blueprints, self._known, self._fossils)

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        return list(self._slots)

    @property
    def seeds(self) -> Mapping[str, Seed]:
        """Every seed but the dormant ones, which their slots have forgotten."""
        return {seed_id: seed for seed_id, seed in self._known.items() if seed.stage != DORMANT}

    def learning(self) -> Mapping[str, Seed]:
        """Seeds whose own optimizers step now."""
        return {seed_id: seed for seed_id, seed in self._known.items() if seed.learns}

    def states(self) -> list[pb.SeedState]:
        """Of every seed ever germinated. Waits for the device."""
        return [seed.state(self.step, self.epoch) for seed in self._known.values()]

    def requests(self) -> list[pb.SeedRequest]:
        """Culls that this rank has reason to ask for; repeated until they are decided."""
        return [seed.complaint for seed in self._known.values() if seed.complaint is not None]

    def reports(self) -> list[pb.SeedReport]:
        return [seed.report() for seed in self._known.values()]

    # -- what a step brings ------------------------------------------------------------------------------------------

    def begin_step(self, step: int, epoch: int) -> None:
        """Move alphas and look after the seeds. Waits for the device every `read_every` steps, if any seed lives."""
        self.step, self.epoch = step, epoch
        living = [slot.seed for slot in self._slots.values() if slot.seed is not None]
        for slot in self._slots.values():
            slot.step = step
            slot.walk_due |= step % self.settings.walk_every == 0
        for seed in living:
            seed.set_alpha(step)
            self._look_after(seed)
        if living and step % self.settings.read_every == 0:
            self._read_strikes(living)

    def note_loss(self, loss: Tensor) -> None:
        """Once per step, on the device: nothing is read."""
        self._losses.add(loss)

    def observe(self, host_gradients: Iterable[Tensor], step: int) -> None:
        """Once per optimizer step, after the seeds' gradients were averaged and before the seeds step."""
        learning = self.learning()
        gradients = list(host_gradients) if learning else []
        if not gradients:
            return
        host_norm = norm_of(gradients).double()
        for seed in learning.values():
            seed.meter.close_step(host_norm, seed.gradients())

    def bypassed(self) -> list[str]:
        """Sites whose slots the last backward's forwards went past; call once per optimizer step, gradients present."""
        return bypassed(self._host, self._slots.values())

    def _look_after(self, seed: Seed) -> None:
        if seed.breaker.state == OPEN:
            detail = f"{seed.violations} isolation violations; the breaker opens at {seed.breaker.settings.threshold}"
            seed.complain(pb.ReasonCode.REASON_BREAKER_OPEN, detail)
        settled = seed.blends and seed.graphs_seen is None
        # Entering BLENDING may compile once; what comes after that must not.
        if settled and (seed.stage != BLENDING or self.step >= seed.stage_since_step + self.settings.read_every):
            seed.graphs_seen = compiled_graphs()

    def _read_strikes(self, living: Sequence[Seed]) -> None:
        counters = torch.stack([torch.stack((seed.meter.strikes, seed.meter.num_non_finite)) for seed in living])
        limit = self.settings.circuit_breaker_threshold
        for seed, (strikes, non_finite) in zip(living, counters.tolist(), strict=True):
            if strikes > limit:
                reason = pb.ReasonCode.REASON_NON_FINITE if non_finite else pb.ReasonCode.REASON_BREAKER_OPEN
                size = f"{non_finite:g} samples not finite, the rest beyond {10 * self.settings.rho_max:g} * norm(h)"
                seed.complain(reason, f"{strikes:g} forwards gated away ({size}); at most {limit}")

    # -- what a run decides ------------------------------------------------------------------------------------------

    def apply(self, command: pb.SeedCommand, step: int, epoch: int) -> Outcome:
        """Carry out a committed command between two steps. All ranks call it alike; a refusal changes nothing."""
        try:
            return self._moves.carry_out(command, Moment(step, epoch))
        except RefusedError as error:
            return self._refused(command.seed_id, error)

    def request(self, request: pb.SeedRequest, step: int, epoch: int) -> Outcome:
        """Carry out a cull that some rank asked for and the coordinator decided."""
        try:
            if request.operation != pb.SeedOperation.SEED_OP_CULL:
                raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, "only a cull can be requested by a rank")
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
        return self._moves.cull(seed, now, detail=detail)

    def _refused(self, seed_id: str, error: RefusedError) -> Outcome:
        seed = self._known.get(seed_id)
        return Outcome(
            pb.ReceiptStatus.RECEIPT_FAILED,
            error.reason,
            error.detail,
            seed.stage if seed else DORMANT,
        )

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> object:
        """Everything that `restore` needs, held as copies on the device."""
        return keep(self._known)

    def restore(self, kept: object, step: int) -> None:
        """Put the seeds back. Call it before the host's own parameters are put back: fossils made since leave first."""
        assert isinstance(kept, dict)  # what snapshot() gave
        put_back(kept, self._known, self._slots, self._fossils, step)


def bare_name(site: str) -> str:
    for wrapper in WRAPPERS:
        while site.startswith(wrapper):
            site = site.removeprefix(wrapper)
    return site.replace("._orig_mod.", ".").removesuffix("._orig_mod")


def found(host: nn.Module, site: str) -> nn.Module:
    """The submodule of this name, with the prefixes of wrappers ignored."""
    exact: dict[str, nn.Module] = dict(host.named_modules())
    named = {bare_name(name): module for name, module in exact.items() if name} | exact
    module: nn.Module | None = named.get(site, named.get(bare_name(site)))
    if module is None or not site:
        raise SettingError("sites", site, f"one of {', '.join(sorted(name for name in exact if name))}")
    return module
