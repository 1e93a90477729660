"""Carries out what is commanded of the host's optimizer and of the seeds' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, assert_never, cast

import torch

from esper.errors import RefusedError, listed
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.frozen import Frozen
from esper.tolaria.optimizers.gate import HostGate
from esper.tolaria.optimizers.host import HostOptimizer, KeptHost
from esper.tolaria.optimizers.joint import NOTHING_FOUND, Measured, StepFault
from esper.tolaria.optimizers.kinds import require_bounds, require_known
from esper.tolaria.optimizers.leases import DEFAULT, Lease, Leases
from esper.tolaria.optimizers.overrides import Overrides, write
from esper.tolaria.optimizers.owners import HOST, Owners
from esper.tolaria.optimizers.scaling import step_was_skipped, unscale
from esper.tolaria.optimizers.seed_optimizer import KeptSeedOptimizer, SeedOptimizer
from esper.tolaria.optimizers.seed_optimizers import SeedOptimizers
from esper.tolaria.optimizers.sparse import require_dense
from esper.tolaria.optimizers.standing import Standing
from esper.tolaria.optimizers.surroundings import ALONE, Surroundings
from esper.tolaria.reduce import SeedReducer, Trainee as Trainee, parameters_of
from esper.tolaria.state.bank import Bank

_Kind = pb.OptimizerCommandType
PENDING = pb.ReceiptStatus.RECEIPT_UNKNOWN  # of a command whose effect comes later, on all ranks before the same step


@dataclass(frozen=True, slots=True)
class OptimizerOutcome:
    """How this rank fared with one command: ReceiptStatus and ReasonCode numbers, and a sentence where it failed."""

    status: pb.ReceiptStatus
    reason: pb.ReasonCode = pb.ReasonCode.REASON_NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class KeptOptimizers:
    """Moments of all optimizers at one step."""

    host: KeptHost
    seeds: dict[str, KeptSeedOptimizer]

    def tensors(self) -> list[torch.Tensor]:
        return [
            *self.host.moments.tensors(),
            *(each for kept in self.seeds.values() for each in kept.moments.tensors()),
        ]


class Optimizers:
    """The host's optimizer, adopted, and one per training seed. Knows nothing of stages nor of the wire.

    Before each step the session calls `begin_step(step)`; after the step of the host's optimizer `reduce(seeds)`, and
    once it has looked at the reduced gradients `step(step)`. What is not to be learnt from is thrown away by `skip()`.
    """

    def __init__(
        self,
        host: torch.optim.Optimizer,
        *,
        reduce: SeedReducer,
        scaler: torch.amp.GradScaler | None = None,
        around: Surroundings = ALONE,
    ) -> None:
        self._host = HostOptimizer(host, around.announce, around.schedulers)
        self._gate = HostGate(host) if around.own_host else None
        self._reducer, self._scaler, self._around = reduce, scaler, around
        self._standing = Standing()
        self._owners = Owners(around.model or self._host.named, around.teacher)
        self._owners.claim_host(self._host.parameters(), strict=False)
        self._ensemble = SeedOptimizers(self._owners, around.clips)
        self._seeds, self.frozen = self._ensemble.held, Frozen()

    @property
    def generations(self) -> dict[str, int]:
        """Of the optimizers that exist; a dropped one's count goes on when it is created again."""
        return {name: self._standing.generations[name] for name in (HOST, *self._seeds)}

    @property
    def own_host(self) -> bool:
        """Whether leases govern the host's steps too."""
        return self._gate is not None

    def left_out(self, seed_id: str) -> dict[str, float]:
        """How many steps a seed has not taken, by the reason for it."""
        return self._seeds[seed_id].left_out()

    def owns(self, optimizer_id: str) -> tuple[str, ...]:
        """Qualified names of the parameters that this optimizer steps."""
        return self._owners.owns(optimizer_id)

    def owner_of(self, parameter: torch.Tensor | str) -> str:
        """The optimizer that steps a parameter, or the name of one; `teacher`, or empty where none does."""
        return self._owners.owner_of(parameter)

    def hyperparameters(self, optimizer_id: str = HOST) -> dict[str, float]:
        """Those that the next step will use; between steps the host's groups show the user's own."""
        return self._find(optimizer_id).effective()

    def learning_rate(self, optimizer_id: str = HOST) -> float | torch.Tensor:
        """The one that the next step will use, warm-up included."""
        return self._find(optimizer_id).learning_rate()

    @property
    def has_plain_values(self) -> bool:
        """Whether nothing is commanded of the host's optimizer, and its rate is a number and no tensor."""
        overrides = self._host.overrides
        return not overrides.values and isinstance(overrides.learning_rate(), float)

    def has(self, seed_id: str) -> bool:
        return seed_id in self._seeds

    def begin_step(self, step: int) -> None:
        """Say which step the host's optimizer is about to be asked for."""
        if self._gate:
            self._gate.begin_step(step)

    def give_back(self) -> None:
        """Show the script its own groups where its optimizer has raised in the step: torch calls no post-hook then."""
        self._host.overrides.put_back()
        if self._gate:
            self._gate.show()

    def apply(self, command: pb.OptimizerCommand, step: int, seeds: Mapping[str, Trainee]) -> OptimizerOutcome:
        """Carry out a command before `step` begins, or say why not; a refused one changes nothing."""
        try:
            detail = self._apply(command, step, seeds)
            later = command.command_type == _Kind.OPTIMIZER_COMMAND_REGISTER_TEACHER and not detail
            return OptimizerOutcome(PENDING if later else pb.ReceiptStatus.RECEIPT_APPLIED, detail=detail)
        except RefusedError as error:
            return _failed(error)

    def adjust(self, adjustment: pb.OptimizerAdjustment) -> OptimizerOutcome:
        """Set values that win over the user's scheduler and a seed's warm-up, and hand others back to them."""
        name, values = adjustment.optimizer_id, dict(adjustment.hyperparameters)
        try:
            found = self._find(name)
            overrides = found.overrides
            require_known(name, overrides.unknown([*values, *adjustment.release]), overrides.effective())
            require_bounds(name, values, in_half=isinstance(found, SeedOptimizer) and found.in_half)
            if found is self._host:
                require_dense(name, values, self._around.sparse(), self._host.parameters())
        except RefusedError as error:
            return _failed(error)
        released = set(adjustment.release)
        overrides.set({each: value for each, value in {**overrides.values, **values}.items() if each not in released})
        return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_APPLIED)

    def refusal(self, seed: Trainee) -> OptimizerOutcome | None:
        """Why `create` would refuse this seed, if it would for its parameters."""
        try:
            self._owners.require_free(seed.seed_id, seed.trainable())
        except RefusedError as error:
            return _failed(error)
        return None

    def create(self, seed: Trainee, **hyperparameters: float) -> str:
        """Give a seed an optimizer without history: AdamW, or what the names say (see kinds.kind_of); says which.

        RefusedError where a value does not fit, or one of the seed's parameters belongs to somebody else.
        """
        made = self._ensemble.create(seed, hyperparameters)
        self._standing.renewed(seed.seed_id)
        size = sum(parameter.numel() for parameter in made.parameters)
        return f"{made.kind.name} of {len(made.parameters)} parameters with {size} elements"

    def drop(self, seed_id: str) -> None:
        """Forget a seed's optimizer with all its state, if there is one."""
        self._ensemble.drop(seed_id)

    def fossilize(self, seed_id: str, parameters: Sequence[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
        """The host's optimizer goes on with what a seed became, from its moments where it keeps the same ones.

        Returns those that it steps from now on; what it can't step is frozen, and stays as the seed has left it.
        """
        seed = self._ensemble.drop(seed_id)
        joined = self.frozen.leave_out(parameters, self._host.takes)
        self._join(joined, strict=False)
        if seed is not None:
            self._host.take_over(seed.torch, joined)
        return joined

    def add_to_host(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Let the host's optimizer train these; RefusedError for a seed's, a teacher's or one outside the model."""
        self._join(parameters, strict=self._around.model is not None)

    def let_go(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """The model has lost these: the host's optimizer forgets them, with their state."""
        self._host.remove(parameters)
        self._owners.claim_host(self._host.parameters(), strict=False)

    def reduce(self, seeds: Mapping[str, Trainee]) -> None:
        """Unscale the seeds' gradients and average them over the ranks; all ranks call it with the same seeds."""
        if self._scaler is not None and self._scaler.is_enabled():
            if step_was_skipped(self._scaler, self._host.torch):
                return self.skip()
            unscale(self._scaler, [p.grad for p in parameters_of(seeds) if p.grad is not None])
        self._reducer.reduce(seeds)

    def skip(self) -> None:
        """Throw the seeds' gradients away."""
        self._ensemble.forget_gradients()

    def step(self, step: int, found: Mapping[str, Measured] = NOTHING_FOUND) -> list[StepFault]:
        """Step all seeds that have gradients and a lease, then clear all their gradients. Reads the device once.

        `found`, by id: what was measured of these gradients. Returns what kept a seed from its step; others had theirs.
        """
        return self._ensemble.step(step, found)

    def snapshot(self, bank: Bank) -> KeptOptimizers:
        return KeptOptimizers(self._host.snapshot(bank), self.snapshot_seeds(bank))

    def snapshot_seeds(self, bank: Bank) -> dict[str, KeptSeedOptimizer]:
        """The small part: an emergency waits for no more."""
        return self._ensemble.keep(bank)

    def restore(self, kept: KeptOptimizers, seeds: Mapping[str, Trainee]) -> None:
        """Moments as they were; seeds that had no optimizer lose theirs, generations, leases and overrides stay."""
        self.frozen.thaw(self._owners.name_of)
        self._host.restore(kept.host)
        self._owners.claim_host(self._host.parameters(), strict=False)
        for name in self._ensemble.restore(kept.seeds, seeds):
            self._standing.renewed(name)

    def standing(self) -> dict[str, Any]:
        """What no rollback rewinds and a restart must know, as plain data: generations, repeats, leases, overrides."""
        overrides = {name: dict(held.values) for name, held in self._all_overrides().items()}
        leases = {name: list(map(astuple, held.granted())) for name, held in self._all_leases().items()}
        return {**self._standing.dump(), "overrides": overrides, "leases": leases}

    def resume(self, standing: Mapping[str, Any]) -> None:
        """Stand where `standing` was taken; the seeds' optimizers must have been restored by then."""
        self._standing.load(standing)
        for name, held in self._all_leases().items():
            held.put_back(tuple(Lease(*each) for each in standing["leases"].get(name, [astuple(DEFAULT)])))
        for name, overrides in self._all_overrides().items():
            overrides.set(standing["overrides"].get(name, {}))

    def close(self) -> None:
        """Leave the host's optimizer as the user's alone: no hook, no override, no lease."""
        self._host.close()
        if self._gate:
            self._gate.close()

    def _all_leases(self) -> dict[str, Leases]:
        host = {HOST: self._gate.leases} if self._gate else {}
        return host | {name: seed.leases for name, seed in self._seeds.items()}

    def _all_overrides(self) -> dict[str, Overrides]:
        return {HOST: self._host.overrides, **{name: seed.overrides for name, seed in self._seeds.items()}}

    def _join(self, parameters: Sequence[torch.nn.Parameter], *, strict: bool) -> None:
        if parameters:
            self._owners.claim_host([*self._host.parameters(), *parameters], strict=strict)
            self._host.add([(self._owners.name_of(parameter), parameter) for parameter in parameters])
            self._owners.claim_host(self._host.parameters(), strict=False)

    def _apply(self, command: pb.OptimizerCommand, step: int, seeds: Mapping[str, Trainee]) -> str:
        kind = command.command_type
        if kind == _Kind.OPTIMIZER_COMMAND_REGISTER_TEACHER:
            return self._around.register_teacher(command.teacher_digest, step)
        if kind == _Kind.OPTIMIZER_COMMAND_STEP:
            self._standing.require_generation(command)
            return self._grant(command, step)
        if done := self._standing.met(command):
            return done
        self._standing.require_generation(command)
        done = self._renew(command, seeds)
        self._standing.note(command, step)
        return done

    def _renew(self, command: pb.OptimizerCommand, seeds: Mapping[str, Trainee]) -> str:
        """Commands after which an optimizer is another generation."""
        kind, name = command.command_type, command.optimizer_id
        if kind == _Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST:
            self._initialize_host(name, dict(command.hyperparameters))
        elif kind == _Kind.OPTIMIZER_COMMAND_CREATE_SEED:
            return self.create(_seed(name, seeds), **command.hyperparameters)
        elif kind == _Kind.OPTIMIZER_COMMAND_RESET_STATE:
            self._find(name).clear()
            self._standing.renewed(name)
        else:
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, f"no optimizer command has the number {kind}")
        return ""

    def _initialize_host(self, name: str, values: dict[str, float]) -> None:
        if name not in ("", HOST):
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_OPTIMIZER, f"{name!r} is not the host; expected {HOST!r}")
        overrides = self._host.overrides
        require_known(HOST, overrides.unknown(list(values)), overrides.effective())
        require_bounds(HOST, values)
        require_dense(HOST, values, self._around.sparse(), self._host.parameters())
        self._owners.claim_host(self._host.parameters())
        for group in self._host.torch.param_groups:
            for each, value in values.items():
                write(group, each, value)
        self._standing.renewed(HOST)

    def _grant(self, command: pb.OptimizerCommand, step: int) -> str:
        leases = self._leases(command.optimizer_id)
        first = command.expected_step or step
        end = first + command.num_steps if command.num_steps else None
        if end is not None and end <= step:
            detail = f"the lease [{first}, {end}) is over before step {step}, where it takes effect"
            raise RefusedError(pb.ReasonCode.REASON_UNEXPECTED_STEP, detail)
        leases.grant(Lease(first, end, command.grad_clip_norm), step)
        return ""

    def _leases(self, optimizer_id: str) -> Leases:
        match self._find(optimizer_id):
            case SeedOptimizer() as seed:
                return seed.leases
            case HostOptimizer() if self._gate:
                return self._gate.leases
            case HostOptimizer():
                detail = "the host steps by itself; leases govern it only with attach(own_host=True)"
                raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
            case never:
                assert_never(never)

    def _find(self, optimizer_id: str) -> HostOptimizer | SeedOptimizer:
        if optimizer_id == HOST:
            return self._host
        if optimizer_id not in self._seeds:
            known = ", ".join((HOST, *sorted(self._seeds)))
            detail = f"no optimizer is called {optimizer_id!r}; known: {known}"
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_OPTIMIZER, detail)
        return self._seeds[optimizer_id]


def _failed(error: RefusedError) -> OptimizerOutcome:
    return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_FAILED, cast("pb.ReasonCode", error.reason), error.detail)


def _seed(seed_id: str, seeds: Mapping[str, Trainee]) -> Trainee:
    if seed_id not in seeds:
        detail = f"no seed is called {seed_id!r}; known: {listed(sorted(seeds))}"
        raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_SEED, detail)
    return seeds[seed_id]
