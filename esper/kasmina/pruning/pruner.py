"""Prunes a model that trains: measures, takes masks, ramps them in, watches what they do, and takes them back."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from esper.errors import RefusedError, SettingError
from esper.kasmina.moves import Outcome
from esper.kasmina.pruning import persisted
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.importance import ImportanceTracker, scaled_by
from esper.kasmina.pruning.masks import Masks, checked, require_margin
from esper.kasmina.pruning.messages import importance_requests, masks_in
from esper.kasmina.pruning.outcome import PruningEvent, applied, failed, told, told_things
from esper.kasmina.pruning.schedule import Ramp
from esper.kasmina.pruning.undo import Change, Watch
from esper.kasmina.pruning.units import Key
from esper.kasmina.pruning.whole import all_units
from esper.leyline import contracts as pb

Phase = pb.PruningPhase
Reason = pb.ReasonCode


@dataclass(frozen=True, slots=True)
class KeptPruning:
    """What a snapshot holds of pruning."""

    masks: dict[Key, Tensor]
    change: Change | None
    ramp: Ramp | None
    order: dict[Key, Tensor]
    watch: Watch
    accuracy: float


PARTED = "a pruning was undone in part, as the process had gone on from a checkpoint, which holds no copies of it"


class Pruning:
    """Of one rank. Every rank is told the same before the same steps, and comes to the same.

    A step is `settle`, what is ordered, `begin_step`, then `before_optimizer_step` and `after_optimizer_step`. Of
    several changes the last one alone can be undone: a new one ends the ramp of the one before it, and gives up its
    copies.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: KasminaCheckpointPruningConfig | None = None,
        *,
        enabled: bool = True,
        reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        """`reduce` makes a tensor its mean over ranks. Where it is not `enabled`, masks are refused until a request
        switches to ACTIVE. Raises SettingError for heads, layers or weights that the model does not have."""
        self.settings = settings or KasminaCheckpointPruningConfig()
        self.phase = self._began = Phase.PRUNING_PHASE_ACTIVE if enabled else Phase.PRUNING_PHASE_DISABLED
        units = all_units(model, self.settings)
        self._things = told_things(self.settings)
        self.masks, self._reduce = Masks(units), reduce
        self.importance = ImportanceTracker(units if self.settings.importance_every else {}, reduce=reduce)
        self._watch = Watch(
            self.settings.median_steps, self.settings.max_gradient_ratio, self.settings.max_accuracy_drop
        )
        self._change: Change | None = None
        self._ramp: Ramp | None = None
        self._order: dict[Key, Tensor] = {}  # channels to be pruned, the smallest weights first
        self._share = -1.0  # of these pruned by now; below 0: look
        self._accuracy, self._num_failures, self._num_updates = math.nan, 0, 0
        self._parted = False  # a change was lifted that a process before this one had begun to prune by
        self._events: list[PruningEvent] = []
        self._exported: list[pb.StructuralPruningRequest] = []

    # -- what a step brings ------------------------------------------------------------------------------------------

    @property
    def looks(self) -> bool:
        """Whether before_optimizer_step has anything to look at, in this step or a later one."""
        return self.settings.importance_every > 0 or self._change is not None

    @property
    def is_idle(self) -> bool:
        """Whether a step finds nothing to look at, to prune, to undo or to tell of; what is pruned stays so."""
        return not (self.settings.importance_every or self._change or self._exported or self._events)

    def settle(self) -> None:
        """Make zero again what the script has written to since its optimizer stepped, by another one or by hand."""
        if self.masks.held[0]:
            self.masks.hold()

    def begin_step(self, step: int) -> None:
        """Prune what the ramp asks for; undo the change if it did harm. While it is watched, waits for the device."""
        if self._change is None or self._ramp is None:
            return
        if not self._change.is_begun:
            self._watch.start(self._accuracy)
        if self._ramp.share(step) != self._share:
            self._advance(self._change, self._ramp, step)
        if step % self.settings.check_every == 0 and (why := self._watch.verdict(self._accuracy, self._reduce)):
            self._fail(step, why)
        elif step >= self._ramp.end + self.settings.watch_steps:
            self._forget_change()
            self._num_failures = 0

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that it is about to step with. Never waits for the device."""
        every = self.settings.importance_every
        measures = every > 0 and self._num_updates % every == 0
        self._num_updates += 1
        if not measures and self._change is None:  # norms are read as seldom as importance, until they are watched
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return
        scale, skipped = scaled_by(optimizer)
        self._watch.note(gradients, scale, skipped)
        if measures:
            self.importance.update(scale, skipped)

    def after_optimizer_step(self) -> None:
        """Take back what momentum and decay did to pruned weights."""
        self.masks.hold()

    def note_accuracy(self, accuracy: float) -> None:
        """The newest one of the training script, a share between 0 and 1."""
        self._accuracy = accuracy

    # -- what a run decides ------------------------------------------------------------------------------------------

    def apply(self, response: pb.StructuralPruningResponse, step: int) -> Outcome:
        """Put masks in force before `step`, or lift the last ones; a refusal changes nothing."""
        try:
            if response.rollback_required:
                return self._lift(step, response.rollback_reason or "asked for")
            return self._prune(response, step)
        except RefusedError as error:
            return failed(error)

    def request(self, request: pb.StructuralPruningRequest, step: int) -> Outcome:
        """Switch to the phase, if it names ACTIVE or DISABLED, and have the importance told at `step`."""
        if not self.settings.importance_every and request.phase == Phase.PRUNING_PHASE_VALIDATION_ONLY:
            detail = "importance is not measured; expected attach(pruning=...) with importance_every of 1 or more"
            return failed(RefusedError(Reason.REASON_NOT_SUPPORTED, detail))
        if request.phase != Phase.PRUNING_PHASE_VALIDATION_ONLY:
            self.phase, self._num_failures = request.phase, 0
        if self.settings.importance_every:
            self._exported += self.export(request.request_id, request.checkpoint_id, step)
        return applied(f"phase {told(self.phase)}", {"num_pruned": self.masks.num_pruned()})

    def export(self, request_id: str, checkpoint_id: str, step: int) -> list[pb.StructuralPruningRequest]:
        """The importance of every unit, in parts. Waits for the device; all ranks call it alike.

        SettingError where the settings have none measured.
        """
        if not self.settings.importance_every:
            raise SettingError("importance_every", 0, "at least 1, so that there is importance to be told")
        head = pb.StructuralPruningRequest(
            request_id=request_id,
            checkpoint_id=checkpoint_id,
            step=step,
            phase=self.phase,
            num_steps=self.importance.num_steps(),
        )
        return importance_requests(head, self.masks.units, self.importance.get_stats())

    def take_exported(self) -> list[pb.StructuralPruningRequest]:
        """What is to be told by now, once."""
        exported, self._exported = self._exported, []
        return exported

    def take_events(self) -> list[PruningEvent]:
        """What happened by itself since the last call."""
        events, self._events = self._events, []
        return events

    def kept_bytes(self) -> int:
        """Of the copies that an undo would need."""
        return self._change.num_bytes if self._change else 0

    # -- checkpoints and snapshots -----------------------------------------------------------------------------------

    @property
    def by_chance(self) -> str:
        """Why one process would not come to the same as those that went on from one another; empty: it would."""
        return PARTED if self._parted else ""

    def state(self) -> dict[str, Tensor]:
        """Masks, a ramp under way, norms and sums as tensors by name, for a checkpoint. Not the copies for an undo."""
        looked = torch.tensor([self._accuracy, self._num_updates], dtype=torch.float64, device="cpu")
        watch = torch.cat((looked, self._watch.state())) if self._num_updates else None
        return persisted.state(self.masks.now(), self._ramp, self._order, self.importance, watch)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Put them back, after the weights. Raises RefusedError, with nothing changed, where they fit another model.

        A ramp goes on; an undo would then lift what was pruned since.
        """
        masks, order = persisted.masks_in(state, self.masks), persisted.order_in(state, self.masks)
        self.masks.put_back(masks)
        self._forget_change()
        if (watch := persisted.watch_in(state, 2 + self._watch.size)) is not None:
            self._accuracy, self._num_updates = float(watch[0]), int(watch[1])
            self._watch.load_state(watch[2:])
        if order:
            self._ramp, self._order = persisted.ramp_in(state), order
            went_on = any(not self.masks.kept(key)[channels].all() for key, channels in order.items())
            self._change = Change(self.masks.now(), went_on=went_on)
            if watch is None:
                self._watch.start(self._accuracy)
        persisted.load_importance(state, self.importance)

    def standing(self) -> dict[str, int]:
        """Whether it is disabled, how near to it, and whether one was undone in part: for a process that resumes."""
        kept = {"phase": self.phase, "failures": self._num_failures, "began": self._began}
        return {**kept, "parted": self._parted}

    def load_standing(self, state: Mapping[str, int]) -> None:
        """Unless the script has it begin otherwise by now, which counts then."""
        self._parted = bool(state.get("parted"))
        if state.get("began", self._began) == self._began:  # its first checkpoints don't say
            self.phase, self._num_failures = cast("pb.PruningPhase", state["phase"]), state["failures"]

    def snapshot(self) -> object:
        change = self._change and self._change.copied()
        watch = copy.deepcopy(self._watch)
        return KeptPruning(self.masks.now(), change, self._ramp, self._order, watch, self._accuracy)

    def restore(self, kept: object) -> None:
        """Masks as they were, judged by what was known of them then. Call it after the weights were put back."""
        assert isinstance(kept, KeptPruning)  # what snapshot() gave
        self._change = kept.change and kept.change.copied()
        self._ramp, self._order, self._share = kept.ramp, kept.order, -1.0
        self._watch, self._accuracy = copy.deepcopy(kept.watch), kept.accuracy
        self.masks.put_back(kept.masks)

    def close(self) -> None:
        """Remove every hook; what was pruned is zero, and stays so until it is trained again."""
        self._forget_change()
        self.masks.hold()
        self.masks.put_back({})

    # -- inside ------------------------------------------------------------------------------------------------------

    def _prune(self, response: pb.StructuralPruningResponse, step: int) -> Outcome:
        if self.phase == Phase.PRUNING_PHASE_DISABLED:
            why = f" ({self._num_failures} changes undone in a row)" if self._num_failures else ""
            detail = f"pruning is disabled{why}; a request with ACTIVE enables it"
            raise RefusedError(Reason.REASON_BREAKER_OPEN, detail)
        wanted = masks_in(response, self.masks.units)
        for key, kept in wanted.items():
            checked(key, kept, self.masks)
        require_margin(wanted, self.masks, self.settings.safety_margin)
        num_steps = self.settings.ramp_steps if self.settings.schedule == "cubic" else 0
        self._ramp = Ramp(step, num_steps, self.settings.ramp_every)
        pruned = {key: (~kept).nonzero().flatten() for key, kept in wanted.items()}
        self._order = {key: self._ordered(key, each) for key, each in pruned.items()} if num_steps else pruned
        self._change = Change(self.masks.now())
        self._watch.start(self._accuracy)
        self._advance(self._change, self._ramp, step)
        num = sum(map(len, self._order.values()))
        return applied(
            f"{num} {self._things} to be pruned by step {self._ramp.end}",
            {"num_pruned": self.masks.num_pruned(), "kept_bytes": self.kept_bytes()},
        )

    def _ordered(self, key: Key, channels: Tensor) -> Tensor:
        """Those with the smallest weights first: all ranks hold the same weights."""
        unit = self.masks.units[key]
        size = torch.zeros(unit.num_channels, dtype=torch.float64, device="cpu")
        for part, parameter in unit.tensors():
            sizes = parameter.detach().abs().double()
            squares = sizes.square().reshape(part.blocks(parameter.shape, unit.num_channels))
            size += squares.sum([at for at in range(squares.ndim) if at != part.dim + 1]).cpu()
        return channels[torch.argsort(size[channels], stable=True)]

    def _advance(self, change: Change, ramp: Ramp, step: int) -> None:
        wanted = {}
        for key, channels in self._order.items():
            kept = torch.ones(self.masks.units[key].num_channels, dtype=torch.bool, device="cpu")
            kept[channels[: ramp.count(step, len(channels))]] = False
            wanted[key] = kept
        self.masks.prune(wanted, change)
        self._share = ramp.share(step)

    def _lift(self, step: int, why: str) -> Outcome:
        change = self._change
        if change is None:
            detail = "no masks can be lifted: none was put in force, or it is no longer watched"
            raise RefusedError(Reason.REASON_NO_SNAPSHOT, detail)
        num = self.masks.num_pruned()
        self._parted |= change.went_on
        self.masks.put_back(change.before)
        change.put_back()
        self.masks.hold()
        self._forget_change()
        num -= self.masks.num_pruned()
        self._tell("pruning.undone", step=str(step), reason=why, channels=str(num))
        return applied(f"{num} {self._things} restored: {why}", {"num_pruned": self.masks.num_pruned()})

    def _fail(self, step: int, why: str) -> None:
        self._lift(step, why)
        self._num_failures += 1
        if self._num_failures >= self.settings.max_consecutive_failures:
            self.phase = Phase.PRUNING_PHASE_DISABLED
            self._tell("pruning.disabled", step=str(step), failures=str(self._num_failures))

    def _forget_change(self) -> None:
        self._change, self._ramp, self._order, self._share = None, None, {}, -1.0

    def _tell(self, name: str, **attributes: str) -> None:
        self._events.append(PruningEvent(name, attributes))
