"""Accepts or refuses each waiting command, in log order, against the state that the votes name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from esper.errors import RefusedError, listed, near
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.lifecycle import EMBARGOED, operation_name, short
from esper.tamiyo.world import HOST, Catalogue, World

_Reason = pb.ReasonCode
_Operation = pb.SeedOperation
COMMANDS, OPTIMIZER = "commands", "optimizer"


@dataclass(frozen=True)
class Waiting:
    """A command whose envelope was opened and found good, and which no round has judged yet."""

    stream: str
    entry_id: str
    message: pb.AdaptationCommand | pb.OptimizerCommand
    header: Header
    digest: bytes

    @property
    def order(self) -> tuple[int, int, str]:
        """Log order: by entry id, :commands before :optimizer."""
        return *entry_order(self.entry_id), self.stream

    @property
    def is_rollback(self) -> bool:
        return isinstance(self.message, pb.AdaptationCommand) and self.message.HasField("rollback_command")


_BLEND = {
    "alpha": pb.BlueprintParameter(name="alpha", minimum=0.0, maximum=1.0),
    "steps": pb.BlueprintParameter(name="steps", minimum=0.0, maximum=1e9, integer=True),
}


# The policy is to advance the seed (1), or to leave it to commands (0).
_AUTO = {"auto": pb.BlueprintParameter(name="auto", minimum=0.0, maximum=1.0, integer=True)}
_ADVANCING = frozenset(
    {
        _Operation.SEED_OP_START_TRAINING,
        _Operation.SEED_OP_START_GRAFTING,
        _Operation.SEED_OP_STABILIZE,
        _Operation.SEED_OP_EVALUATE,
        _Operation.SEED_OP_FOSSILIZE,
        _Operation.SEED_OP_RESET,
    }
)


@dataclass
class Judge:
    """The one judge of a round. A verdict moves the world on, so that the next command meets its outcome."""

    world: World
    catalogue: Catalogue
    effective_step: int
    epoch: int
    now_ns: int

    def accept(self, waiting: Waiting) -> pb.CommittedCommand:
        """How the commit names the command; RefusedError where it must not take effect."""
        self._in_time(waiting.header)
        snapshot_step = 0
        match waiting.message:
            case pb.AdaptationCommand():
                snapshot_step = self._adaptation(waiting.message)
            case pb.OptimizerCommand():
                self._optimizer(waiting.message)
        return pb.CommittedCommand(
            stream=waiting.stream,
            entry_id=waiting.entry_id,
            command_id=waiting.message.command_id,
            envelope_digest=waiting.digest,
            snapshot_step=snapshot_step,
        )

    def take_over(self, request: pb.SeedRequest) -> bool:
        """Whether a rank's request is still legal, after the commands of the round; if so, carry it out."""
        try:
            self.world.move(request.seed_id, request.operation)
        except RefusedError:
            return False
        return True

    def _in_time(self, header: Header) -> None:
        met = {
            DeadlineKind.NONE: (0, "step"),
            DeadlineKind.TIME_NS: (self.now_ns, "time"),
            DeadlineKind.STEP: (self.effective_step, "step"),
            DeadlineKind.EPOCH: (self.epoch, "epoch"),
        }
        value, unit = met[header.deadline_kind]
        if value > header.deadline:
            raise RefusedError(
                _Reason.REASON_PAST_DEADLINE,
                f"it would take effect at {unit} {value}; its deadline is {unit} {header.deadline}",
            )

    def _adaptation(self, command: pb.AdaptationCommand) -> int:
        match command.WhichOneof("command"):
            case "seed_command":
                self._seed(command.seed_command)
            case "optimizer_adjustment":
                self._known_optimizer(command.optimizer_adjustment.optimizer_id)
            case "circuit_breaker":
                self._breaker(command.circuit_breaker)
            case "rollback_command":
                return self._rollback(command.rollback_command)
            case "pause_command":
                if command.pause_command.seed_id:
                    self.world.seed(command.pause_command.seed_id)
            case "emergency_command":
                pass
            case "structural_pruning":
                pass  # asks only; the ranks know their own layers
            case "pruning_masks":
                check_masks(command.pruning_masks)
            case None:
                raise RefusedError(_Reason.REASON_MALFORMED, "the command is empty; expected one of its kinds")
        return 0

    def _seed(self, command: pb.SeedCommand) -> None:
        operation, world = command.operation, self.world
        if operation == _Operation.SEED_OP_GERMINATE:
            return self._germinate(command)
        if operation == _Operation.SEED_OP_FINE_TUNE:
            raise RefusedError(_Reason.REASON_NOT_SUPPORTED, "FINE_TUNE is reserved: no stage stands for it")
        seed = world.seed(command.seed_id)
        blends = operation in (_Operation.SEED_OP_START_GRAFTING, _Operation.SEED_OP_SET_ALPHA_TARGET)
        table = (_BLEND if blends else {}) | (_AUTO if operation in _ADVANCING else {})
        check_parameters(operation_name(operation), command.parameters, table)
        if operation == _Operation.SEED_OP_RESET and self.epoch < seed.embargo_until_epoch:
            self._embargoed(command.seed_id, seed.embargo_until_epoch)
        world.move(command.seed_id, operation)

    def _embargoed(self, seed_id: str, until: int) -> None:
        when = f"epoch {until}" if until < 2**63 else "an epoch to come, as its embargo has just begun"
        raise RefusedError(
            _Reason.REASON_EMBARGOED, f"seed {seed_id!r} is embargoed in epoch {self.epoch}; expected {when}"
        )

    def _germinate(self, command: pb.SeedCommand) -> None:
        sites, blueprints = self.catalogue.sites, self.catalogue.blueprints
        if command.site not in sites:
            unknown = f"site {command.site!r} is unknown{self.world.near(command.site, sites)}; sites: {listed(sites)}"
            raise RefusedError(_Reason.REASON_UNKNOWN_SITE, unknown)
        if command.blueprint_id not in blueprints:
            raise RefusedError(
                _Reason.REASON_UNKNOWN_BLUEPRINT,
                f"blueprint {command.blueprint_id!r} is unknown{self.world.near(command.blueprint_id, blueprints)};"
                f" blueprints: {listed(blueprints)}",
            )
        table = {each.name: each for each in blueprints[command.blueprint_id].parameters} | _AUTO
        check_parameters(f"blueprint {command.blueprint_id!r}", command.parameters, table)
        holder = self.world.holder(command.site, but=command.seed_id)
        if holder is not None:
            raise RefusedError(
                _Reason.REASON_SITE_TAKEN,
                f"site {command.site!r} is held by seed {holder!r} ({self._standing(holder)}); expected a free site",
            )
        self.world.germinate(command.seed_id, command.site)

    def _standing(self, seed_id: str) -> str:
        """The stage, and of an embargo how its site is freed."""
        seed = self.world.seeds[seed_id]
        if seed.stage == EMBARGOED and seed.embargo_until_epoch < 2**63:
            return f"EMBARGOED; `reset` frees it from epoch {seed.embargo_until_epoch} on"
        return short(seed.stage)

    def _breaker(self, command: pb.CircuitBreakerCommand) -> None:
        self.world.seed(command.seed_id)
        match command.desired_state:
            case pb.CircuitBreakerState.BREAKER_OPEN:
                self.world.move(command.seed_id, _Operation.SEED_OP_CULL)
            case pb.CircuitBreakerState.BREAKER_CLOSED:
                pass
            case other:
                raise RefusedError(
                    _Reason.REASON_OUT_OF_RANGE, f"desired_state is {int(other)}; expected OPEN or CLOSED"
                )

    def _rollback(self, command: pb.RollbackCommand) -> int:
        steps = self.world.snapshots
        step = command.target_step or max(steps, default=0)
        if step not in steps:
            raise RefusedError(
                _Reason.REASON_NO_SNAPSHOT,
                f"no snapshot of step {command.target_step or 'any'} is held by all ranks;"
                f" steps with one, newest first: {listed(reversed(steps))}",
            )
        return step

    def _optimizer(self, command: pb.OptimizerCommand) -> None:
        initializes = command.command_type == pb.OptimizerCommandType.OPTIMIZER_COMMAND_INITIALIZE_HOST
        name = command.optimizer_id or HOST if initializes else command.optimizer_id
        self._known_optimizer(name)
        have = self.world.optimizers.get(name)
        if command.optimizer_generation and have is not None and command.optimizer_generation != have:
            raise RefusedError(
                _Reason.REASON_WRONG_GENERATION,
                f"generation of optimizer {name!r} is {have}; the command expects {command.optimizer_generation}",
            )
        match command.command_type:
            case pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP:
                self._lease(command)
            case (
                pb.OptimizerCommandType.OPTIMIZER_COMMAND_INITIALIZE_HOST
                | pb.OptimizerCommandType.OPTIMIZER_COMMAND_CREATE_SEED
                | pb.OptimizerCommandType.OPTIMIZER_COMMAND_RESET_STATE
            ):
                self.world.optimizers[name] = None  # a new generation, whose number the ranks choose

    def _lease(self, command: pb.OptimizerCommand) -> None:
        if command.optimizer_id == HOST and not self.world.own_host:
            raise RefusedError(
                _Reason.REASON_NOT_SUPPORTED,
                "the host steps by itself; leases govern it only where every rank attached with own_host=True",
            )
        end = command.expected_step + command.num_steps
        if command.expected_step and command.num_steps and end <= self.effective_step:
            raise RefusedError(
                _Reason.REASON_UNEXPECTED_STEP,
                f"the lease ends before step {end}; it would take effect at step {self.effective_step}",
            )

    def _known_optimizer(self, name: str) -> None:
        known = self.world.steppable()
        if name not in known:
            raise RefusedError(
                _Reason.REASON_UNKNOWN_OPTIMIZER, f"optimizer {name!r} is unknown; optimizers: {listed(known)}"
            )


def check_masks(response: pb.StructuralPruningResponse) -> None:
    """Refuse masks that nobody validated. Whether they fit the model each rank says: the judge knows no layers."""
    if response.rollback_required:
        return
    if not response.validation_passed:
        raise RefusedError(
            _Reason.REASON_OUT_OF_RANGE, "validation_passed is False; expected masks that were validated"
        )
    if not response.pruning_masks:
        raise RefusedError(_Reason.REASON_OUT_OF_RANGE, "number of pruning_masks is 0; expected at least one")


def check_parameters(what: str, values: Mapping[str, float], table: Mapping[str, pb.BlueprintParameter]) -> None:
    """Refuse a name that the table lacks, and a value outside its range."""
    for name, value in sorted(values.items()):
        if name not in table:
            raise RefusedError(
                _Reason.REASON_UNKNOWN_PARAMETER,
                f"{what} has no parameter {name!r}{near(name, table)}; parameters: {listed(table)}",
            )
        spec = table[name]
        fits = math.isfinite(value) and spec.minimum <= value <= spec.maximum
        if not fits or (spec.integer and value != int(value)):
            kind = "a whole number" if spec.integer else "a number"
            raise RefusedError(
                _Reason.REASON_OUT_OF_RANGE,
                f"parameter {name!r} of {what} is {value:g}; expected {kind} from {spec.minimum:g} to {spec.maximum:g}",
            )
