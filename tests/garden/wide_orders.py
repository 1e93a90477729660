"""Commands of the kinds that lives before the fifty-thousandth were not given, and a controller that reads receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

from esper.kasmina.pruning.units import CHANNEL, HEAD, LAYER, WEIGHT, Key
from esper.leyline import contracts as pb
from tests.garden.orders import CURVES, FORWARD, Kind, Op, Orders
from tests.garden.wide import Wide
from tests.pruning_kit import lift, mask, response
from tests.session_kit import Command

APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED
ACTIVE, DISABLED = pb.PruningPhase.PRUNING_PHASE_ACTIVE, pb.PruningPhase.PRUNING_PHASE_DISABLED
LOOKS = pb.PruningPhase.PRUNING_PHASE_VALIDATION_ONLY
GERMINATE, CULL = Op.SEED_OP_GERMINATE, Op.SEED_OP_CULL


class WideOrders:
    """Draws what is new, else what `plain` draws."""

    def __init__(
        self, dice: Random, wide: Wide, plain: Orders, units: Mapping[Key, int], digests: Sequence[str] = ()
    ) -> None:
        """`units` are what can be pruned, with the number of their parts; `digests` of teachers, sound ones and not."""
        self.dice, self.wide, self.plain, self.units, self.digests = dice, wide, plain, units, digests
        self.newest_step = 1
        self._heard: list[tuple[Command, pb.CommandReceipt]] = []

    def hear(self, order: pb.CommitOrder, receipts: Sequence[pb.CommandReceipt]) -> None:
        """What has become of an order."""
        bodies = [each.adaptation if each.HasField("adaptation") else each.optimizer for each in order.commands]
        self._heard = [*self._heard, *zip(bodies, receipts, strict=True)][-6:]

    def draw(self, stages: Mapping[str, int]) -> Command:
        kinds: list[tuple[Callable[[Mapping[str, int]], Command], float]] = [(self.plain.draw, 6.0)]
        if self.wide.teaches:
            kinds.append((self._teacher, 2.0))
        if self.wide.prunes:
            kinds += [(self._masks, 2.0), (self._phase, 0.7), (self._lift, 0.5)]
        if self.wide.steps_by_lease:
            kinds.append((self._grant, 4.0))
        if self.wide.crowds:
            kinds.append((self.plain._germinate, 12.0))
        if self.wide.reacts and self._heard:
            kinds.append((self._react, 6.0))
        kinds += [(self._eight_bits, 0.3), (self._host_values, 0.7)]
        return self.dice.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0](stages)

    def _teacher(self, stages: Mapping[str, int]) -> Command:
        kind, digest = Kind.OPTIMIZER_COMMAND_REGISTER_TEACHER, self.dice.choice(self.digests)
        return _optimizer(kind, "host", teacher_digest=digest)

    def _grant(self, stages: Mapping[str, int]) -> Command:
        dice = self.dice
        fields: dict[str, Any] = {"num_steps": dice.choice([1, 1, 1, 3, 0]), "grad_clip_norm": dice.choice([0, 0, 0.1])}
        if dice.random() < 0.4:
            fields["expected_step"] = max(1, self.newest_step + dice.choice([-2, 0, 1, 4]))
        return _optimizer(Kind.OPTIMIZER_COMMAND_STEP, "host", **fields)

    def _eight_bits(self, stages: Mapping[str, int]) -> Command:
        name = self.dice.choice([*stages, "nobody"])
        values = {"lr": 0.01, "state_bits": self.dice.choice([8.0, 8.0, 32.0, 4.0])}
        return _optimizer(Kind.OPTIMIZER_COMMAND_CREATE_SEED, name, hyperparameters=values)

    def _host_values(self, stages: Mapping[str, int]) -> Command:
        names = ["lr", "weight_decay", "beta1", "beta2", "momentum", "eps"]
        drawn = self.dice.sample(names, self.dice.choice([0, 1, 2]))
        values = {name: self.dice.choice([1e-3, 0.02] if name == "lr" else [1e-3, 0.5]) for name in drawn}
        adjustment = pb.OptimizerAdjustment(
            optimizer_id="host", hyperparameters=values, release=self.dice.sample(names, self.dice.choice([0, 0, 1, 2]))
        )
        return pb.AdaptationCommand(version=1, command_id="adjust", optimizer_adjustment=adjustment)

    # -- pruning -----------------------------------------------------------------------------------------------------

    def _masks(self, stages: Mapping[str, int]) -> Command:
        masks = [self._mask() for _ in range(self.dice.choice([0, 1, 1, 2, 3]))]
        return pb.AdaptationCommand(version=1, command_id="prune", pruning_masks=response(*masks))

    def _mask(self) -> pb.PruningMask:
        dice = self.dice
        (name, kind), num = dice.choice([*self.units.items()] or [(("nothing.weight", CHANNEL), 3)])
        wanted = dice.sample(range(num), round(num * dice.choice([0.1, 0.3, 0.5, 0.8, 1.0])))
        if dice.random() < 0.8:
            dim = 1 if kind == HEAD else 0
            return mask(name, wanted, num, cast("pb.PruningMaskType", kind), dim)
        wrong = [
            (name + "s", num, kind, 0),
            (name, num + 1, kind, 0),
            (name, num, kind, 1),
            (name, num, dice.choice([CHANNEL, HEAD, LAYER, WEIGHT]), 0),
        ]
        name, num, kind, dim = dice.choice(wrong)
        return mask(name, wanted, num, cast("pb.PruningMaskType", kind), dim)

    def _lift(self, stages: Mapping[str, int]) -> Command:
        return pb.AdaptationCommand(version=1, command_id="lift", pruning_masks=lift("by the dice"))

    def _phase(self, stages: Mapping[str, int]) -> Command:
        request = pb.StructuralPruningRequest(
            request_id="asked", checkpoint_id="c", phase=self.dice.choice([ACTIVE, ACTIVE, LOOKS, DISABLED])
        )
        return pb.AdaptationCommand(version=1, command_id="phase", structural_pruning=request)

    # -- what receipts said ------------------------------------------------------------------------------------------

    def _react(self, stages: Mapping[str, int]) -> Command:
        """To one of the newest receipts: ask again, go on, take it back, or give up."""
        dice = self.dice
        command, receipt = dice.choice(self._heard)
        if dice.random() < 0.2:
            return command
        if isinstance(command, pb.OptimizerCommand):
            return self._about_optimizer(command, receipt)
        match command.WhichOneof("command"):
            case "seed_command":
                return self._about_seed(command.seed_command.seed_id, receipt, stages)
            case "optimizer_adjustment":
                given = command.optimizer_adjustment
                release = pb.OptimizerAdjustment(optimizer_id=given.optimizer_id, release=[*given.hyperparameters])
                return pb.AdaptationCommand(version=1, command_id="release", optimizer_adjustment=release)
            case "pause_command":
                pause = pb.PauseCommand(seed_id=command.pause_command.seed_id, resume=not command.pause_command.resume)
                return pb.AdaptationCommand(version=1, command_id="pause", pause_command=pause)
            case "circuit_breaker":
                breaker = pb.CircuitBreakerCommand(
                    seed_id=command.circuit_breaker.seed_id, desired_state=pb.CircuitBreakerState.BREAKER_CLOSED
                )
                return pb.AdaptationCommand(version=1, command_id="breaker", circuit_breaker=breaker)
            case "pruning_masks":
                return self._lift(stages) if receipt.status == APPLIED else self._masks(stages)
        return self.plain.draw(stages)

    def _about_seed(self, name: str, receipt: pb.CommandReceipt, stages: Mapping[str, int]) -> Command:
        if receipt.status != APPLIED and self.dice.random() < 0.4:
            return _on_seed(CULL, name)
        if stages.get(name) in FORWARD:
            return _on_seed(FORWARD[stages[name]], name, alpha_curve=self.dice.choice(CURVES))
        return self.plain._germinate(stages)

    def _about_optimizer(self, command: pb.OptimizerCommand, receipt: pb.CommandReceipt) -> Command:
        """Once more, for a generation and a step that it names."""
        again = pb.OptimizerCommand()
        again.CopyFrom(command)
        again.optimizer_generation = self.dice.choice([0, 1, 2])
        again.expected_step = max(0, receipt.step + self.dice.choice([-1, 0, 1]))
        return again


def _on_seed(operation: pb.SeedOperation, name: str, **fields: Any) -> Command:
    command = pb.SeedCommand(operation=operation, seed_id=name, **fields)
    return pb.AdaptationCommand(
        version=1, command_id="seed", command_type=pb.CommandType.COMMAND_SEED, seed_command=command
    )


def _optimizer(kind: pb.OptimizerCommandType, name: str, **fields: Any) -> Command:
    return pb.OptimizerCommand(version=1, command_id="optimizer", command_type=kind, optimizer_id=name, **fields)
