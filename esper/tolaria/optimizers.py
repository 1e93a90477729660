"""Carries out what is commanded of the host's optimizer and of the seeds' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria import moments
from esper.tolaria.bank import Bank
from esper.tolaria.host import HostOptimizer, KeptHost
from esper.tolaria.leases import Lease
from esper.tolaria.moments import Moments
from esper.tolaria.overrides import write
from esper.tolaria.reduce import SeedReducer, Trainee as Trainee
from esper.tolaria.seed_optimizer import DEFAULTS, SeedOptimizer

HOST = "host"


@dataclass(frozen=True, slots=True)
class OptimizerOutcome:
    """How this rank fared with one command: ReceiptStatus and ReasonCode numbers, and a sentence where it failed."""

    status: pb.ReceiptStatus
    reason: pb.ReasonCode = pb.ReasonCode.REASON_NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class KeptOptimizers:
    """Moments of all optimizers at one step; of seeds by parameter name, as a seed may be built anew meanwhile."""

    host: KeptHost
    seeds: dict[str, tuple[list[str], dict[str, float], Moments]]

    def tensors(self) -> list[torch.Tensor]:
        return [*self.host.moments.tensors(), *(each for _, _, kept in self.seeds.values() for each in kept.tensors())]


class Optimizers:
    """The host's optimizer, adopted, and one AdamW per training seed. Knows nothing of stages nor of the wire.

    After each step of the host's optimizer the session calls `reduce(seeds)`, and once it has looked at the reduced
    gradients `step(step)`. Where a GradScaler skipped the host's step and so no hook fired, it calls `skip(seeds)`.
    """

    def __init__(
        self,
        host: torch.optim.Optimizer,
        *,
        reduce: SeedReducer,
        scaler: torch.amp.GradScaler | None = None,
        announce: Callable[[Sequence[torch.nn.Parameter]], None] = lambda parameters: None,
    ) -> None:
        self._host = HostOptimizer(host, announce)
        self._reducer, self._scaler = reduce, scaler
        self._seeds: dict[str, SeedOptimizer] = {}
        self._generations = {HOST: 1}

    @property
    def generations(self) -> dict[str, int]:
        """Of the optimizers that exist; a dropped one's count goes on when it is created again."""
        return {name: self._generations[name] for name in (HOST, *self._seeds)}

    @property
    def steps_dropped(self) -> dict[str, int]:
        """Per seed: gradients thrown away because no lease covered the step."""
        return {name: seed.num_dropped for name, seed in self._seeds.items()}

    @property
    def steps_non_finite(self) -> dict[str, int]:
        """Per seed: steps skipped because the reduced gradient was not finite."""
        return {name: seed.num_non_finite for name, seed in self._seeds.items()}

    def hyperparameters(self, optimizer_id: str = HOST) -> dict[str, float]:
        """Those that the next step will use; between steps the host's groups show the user's own."""
        return self._find(optimizer_id).overrides.effective()

    def learning_rate(self, optimizer_id: str = HOST) -> float | torch.Tensor:
        """The one that the next step will use."""
        return self._find(optimizer_id).overrides.learning_rate()

    def has(self, seed_id: str) -> bool:
        return seed_id in self._seeds

    def apply(self, command: pb.OptimizerCommand, step: int, seeds: Mapping[str, Trainee]) -> OptimizerOutcome:
        """Carry out a command before `step` begins, or say why not; a refused one changes nothing."""
        try:
            self._apply(command, step, seeds)
        except RefusedError as error:
            return _failed(error)
        return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_APPLIED)

    def adjust(self, adjustment: pb.OptimizerAdjustment) -> OptimizerOutcome:
        """Set values that win over the user's scheduler, and hand others back to it."""
        try:
            overrides = self._find(adjustment.optimizer_id).overrides
            names = [*adjustment.hyperparameters, *adjustment.release]
            _require_known(adjustment.optimizer_id, overrides.unknown(names), overrides.effective())
        except RefusedError as error:
            return _failed(error)
        overrides.values.update(adjustment.hyperparameters)
        for name in adjustment.release:
            overrides.values.pop(name, None)
        return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_APPLIED)

    def create(self, seed: Trainee, **hyperparameters: float) -> None:
        """Give a seed an AdamW without history. Names: lr, weight_decay, beta1, beta2, eps."""
        _require_known(seed.seed_id, [name for name in hyperparameters if name not in DEFAULTS], DEFAULTS)
        named = seed.trainable()
        if not named:
            detail = f"seed {seed.seed_id!r} has no parameters to optimise; germinate it first"
            raise RefusedError(pb.ReasonCode.REASON_ILLEGAL_TRANSITION, detail)
        self._seeds[seed.seed_id] = SeedOptimizer(named, {**DEFAULTS, **hyperparameters})
        self._bump(seed.seed_id)

    def drop(self, seed_id: str) -> None:
        """Forget a seed's optimizer, if there is one."""
        self._seeds.pop(seed_id, None)

    def add_to_host(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Let the host's optimizer train what a seed became when it was fossilised."""
        self._host.add(parameters)

    def reduce(self, seeds: Mapping[str, Trainee]) -> None:
        """Unscale the seeds' gradients and average them over the ranks; all ranks call it with the same seeds."""
        if self._scaler is not None and self._scaler.is_enabled():
            if self._step_was_skipped(self._scaler):
                return self.skip(seeds)
            _unscale(seeds, self._scaler.get_scale())  # update() comes later: still the scale of this backward
        self._reducer.reduce(seeds)

    def skip(self, seeds: Mapping[str, Trainee]) -> None:
        """Throw the seeds' gradients away."""
        for seed in seeds.values():
            for _, parameter in seed.trainable():
                parameter.grad = None

    def step(self, step: int) -> None:
        """Step each seed that has gradients and a lease, then clear all gradients."""
        for seed in self._seeds.values():
            seed.step(step)

    def snapshot(self, bank: Bank) -> KeptOptimizers:
        return KeptOptimizers(self._host.snapshot(bank), {name: seed.keep(bank) for name, seed in self._seeds.items()})

    def restore(self, kept: KeptOptimizers, seeds: Mapping[str, Trainee]) -> None:
        """Moments as they were; seeds that had no optimizer lose theirs, generations, leases and overrides stay."""
        self._host.restore(kept.host)
        self._seeds = {name: seed for name, seed in self._seeds.items() if name in kept.seeds}
        for name, (names, hyperparameters, held) in kept.seeds.items():
            if name not in seeds:
                self.drop(name)
                continue
            if name not in self._seeds:
                self.create(seeds[name], **hyperparameters)
            self._seeds[name].put_back(seeds[name].trainable(), names, held)

    def _apply(self, command: pb.OptimizerCommand, step: int, seeds: Mapping[str, Trainee]) -> None:
        self._require_generation(command)
        kind, name = command.command_type, command.optimizer_id
        if kind == pb.OptimizerCommandType.OPTIMIZER_COMMAND_INITIALIZE_HOST:
            self._initialize_host(name, dict(command.hyperparameters))
        elif kind == pb.OptimizerCommandType.OPTIMIZER_COMMAND_CREATE_SEED:
            self.create(_seed(name, seeds), **command.hyperparameters)
        elif kind == pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP:
            self._grant(command, step)
        elif kind == pb.OptimizerCommandType.OPTIMIZER_COMMAND_RESET_STATE:
            moments.clear(self._find(name).torch)
            self._bump(name)
        elif kind == pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER:
            raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, "not supported yet")
        else:
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, f"no optimizer command has the number {kind}")

    def _initialize_host(self, name: str, hyperparameters: dict[str, float]) -> None:
        if name not in ("", HOST):
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_OPTIMIZER, f"{name!r} is not the host; expected {HOST!r}")
        overrides = self._host.overrides
        _require_known(HOST, overrides.unknown(list(hyperparameters)), overrides.effective())
        for group in self._host.torch.param_groups:
            for each, value in hyperparameters.items():
                write(group, each, value)
        self._bump(HOST)

    def _grant(self, command: pb.OptimizerCommand, step: int) -> None:
        if command.optimizer_id == HOST:
            detail = "the host steps by itself; a lease may be granted to a seed"
            raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
        optimizer = self._find(command.optimizer_id)
        assert isinstance(optimizer, SeedOptimizer)
        first = command.expected_step or step
        end = first + command.num_steps if command.num_steps else None
        if end is not None and end <= step:
            detail = f"the lease [{first}, {end}) is over before step {step}, where it takes effect"
            raise RefusedError(pb.ReasonCode.REASON_UNEXPECTED_STEP, detail)
        optimizer.leases.grant(Lease(first, end, command.grad_clip_norm), step)

    def _find(self, optimizer_id: str) -> HostOptimizer | SeedOptimizer:
        if optimizer_id == HOST:
            return self._host
        if optimizer_id not in self._seeds:
            known = ", ".join((HOST, *sorted(self._seeds)))
            detail = f"no optimizer is called {optimizer_id!r}; known: {known}"
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_OPTIMIZER, detail)
        return self._seeds[optimizer_id]

    def _require_generation(self, command: pb.OptimizerCommand) -> None:
        wanted, name = command.optimizer_generation, command.optimizer_id or HOST
        present = self._generations.get(name, 0)
        if wanted and wanted != present:
            detail = f"optimizer {name!r} is at generation {present}; the command expects {wanted}"
            raise RefusedError(pb.ReasonCode.REASON_WRONG_GENERATION, detail)

    def _bump(self, name: str) -> None:
        self._generations[name] = self._generations.get(name, 0) + 1

    def _step_was_skipped(self, scaler: torch.amp.GradScaler) -> bool:
        """A fused optimizer runs its hooks on a skipped step too, so this is read, not inferred."""
        return any(float(found) > 0 for found in scaler._found_inf_per_device(self._host.torch).values())


def _failed(error: RefusedError) -> OptimizerOutcome:
    return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_FAILED, cast("pb.ReasonCode", error.reason), error.detail)


def _require_known(optimizer_id: str, unknown: list[str], known: Mapping[str, float]) -> None:
    if unknown:
        detail = f"optimizer {optimizer_id!r} has no {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known))}"
        raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)


def _seed(seed_id: str, seeds: Mapping[str, Trainee]) -> Trainee:
    if seed_id not in seeds:
        detail = f"no seed is called {seed_id!r}; known: {', '.join(sorted(seeds)) or 'none'}"
        raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_SEED, detail)
    return seeds[seed_id]


def _unscale(seeds: Mapping[str, Trainee], scale: float) -> None:
    """Where the host's own gradients are unscaled by the scaler, the seeds' are not among them."""
    for seed in seeds.values():
        for _, parameter in seed.trainable():
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 / scale)
