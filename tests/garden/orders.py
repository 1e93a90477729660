"""Commands of every kind, drawn: mostly what a seed is ready for, and often enough what it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

import torch

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import TRANSITIONS
from tests.pruning_kit import lift, mask, response
from tests.session_kit import Command

Op, Kind = pb.SeedOperation, pb.OptimizerCommandType
SEEDS = ("a", "b", "c", "d")
GIVEN: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "lora": ("rank", (1, 3, 64)),
    "mlp": ("hidden", (1, 5, 0)),
    "depthwise": ("radius", (1, 2)),
    "se": ("reduction", (1, 2)),
    "attention": ("heads", (1, 2, 3)),
}
FORWARD: Mapping[int, pb.SeedOperation] = {
    pb.SeedLifecycleStage.SEED_STAGE_GERMINATED: Op.SEED_OP_START_TRAINING,
    pb.SeedLifecycleStage.SEED_STAGE_TRAINING: Op.SEED_OP_START_GRAFTING,
    pb.SeedLifecycleStage.SEED_STAGE_BLENDING: Op.SEED_OP_STABILIZE,
    pb.SeedLifecycleStage.SEED_STAGE_SHADOWING: Op.SEED_OP_EVALUATE,
    pb.SeedLifecycleStage.SEED_STAGE_PROBATIONARY: Op.SEED_OP_FOSSILIZE,
    pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED: Op.SEED_OP_RESET,
}
CURVES = tuple(pb.AlphaCurve.values())


class Orders:
    """Draws the next commands from the stages of the seeds."""

    def __init__(self, dice: Random, sites: Sequence[str], blueprints: Sequence[str], weights: Sequence[str]) -> None:
        """`weights` are names of matrices that can be pruned."""
        self.dice, self.sites, self.blueprints, self.weights = dice, sites, blueprints, weights

    def draw(self, stages: Mapping[str, int]) -> Command:
        """One command."""
        dice = self.dice
        kinds = [self._forward, self._germinate, self._seed, self._optimizer, self._adjust, self._pause, self._breaker]
        kind = dice.choices([*kinds, self._prune, self._emergency], [8, 4, 2, 3, 2, 2, 1, 1, 0.3])[0]
        return kind(stages)

    def _name(self, stages: Mapping[str, int]) -> str:
        return self.dice.choice([*stages, *stages, *SEEDS, "nobody"])

    def _forward(self, stages: Mapping[str, int]) -> Command:
        ready = [name for name, stage in stages.items() if stage in FORWARD]
        if not ready:
            return self._germinate(stages)
        name = self.dice.choice(ready)
        return self._on_seed(FORWARD[stages[name]], name)

    def _on_seed(self, operation: pb.SeedOperation, name: str, **fields: Any) -> Command:
        dice, parameters = self.dice, dict[str, float]()
        if operation in (Op.SEED_OP_START_GRAFTING, Op.SEED_OP_SET_ALPHA_TARGET):
            if dice.random() < 0.5:
                parameters["alpha"] = dice.choice([0.0, 0.3, 1.0, 1.0, 2.0, float("nan")])
            if dice.random() < 0.5:
                parameters["steps"] = dice.choice([0, 1, 3, 9, -1])
            fields["alpha_curve"] = dice.choice(CURVES)
        if dice.random() < 0.15:
            parameters["auto"] = dice.choice([0, 1, 1, 2])
        if dice.random() < 0.03:
            parameters["unknown"] = 1.0
        fields["parameters"] = {**parameters, **fields.get("parameters", {})}
        command = pb.SeedCommand(operation=operation, seed_id=name, **fields)
        return pb.AdaptationCommand(
            version=1, command_id="seed", command_type=pb.CommandType.COMMAND_SEED, seed_command=command
        )

    def _germinate(self, stages: Mapping[str, int]) -> Command:
        dice = self.dice
        blueprint = dice.choice([*self.blueprints, "no such"])
        given = {}
        if blueprint in GIVEN and dice.random() < 0.5:
            name, values = GIVEN[blueprint]
            given[name] = float(dice.choice(values))
        site = dice.choice([*self.sites, *self.sites, "nowhere"])
        return self._on_seed(
            Op.SEED_OP_GERMINATE, dice.choice(SEEDS), site=site, blueprint_id=blueprint, parameters=given
        )

    def _seed(self, stages: Mapping[str, int]) -> Command:
        name = self._name(stages)
        legal = [operation for stage, operation in TRANSITIONS if stage == stages.get(name)]
        return self._on_seed(cast("pb.SeedOperation", self.dice.choice([*legal, *legal, *Op.values()])), name)

    def _optimizer(self, stages: Mapping[str, int]) -> Command:
        dice = self.dice
        kind = cast("pb.OptimizerCommandType", dice.choice([*Kind.values(), *Kind.values()[1:2]]))
        name = "host" if dice.random() < 0.2 else self._name(stages)
        values = dict[str, float]()
        if kind == Kind.OPTIMIZER_COMMAND_CREATE_SEED:
            values = dict(dice.choice(CREATED))
        fields: dict[str, Any] = {}
        if kind == Kind.OPTIMIZER_COMMAND_STEP:
            fields = {"num_steps": dice.choice([0, 1, 4]), "grad_clip_norm": dice.choice([0.0, 0.1])}
        return pb.OptimizerCommand(
            version=1, command_id="optimizer", command_type=kind, optimizer_id=name, hyperparameters=values, **fields
        )

    def _adjust(self, stages: Mapping[str, int]) -> Command:
        dice = self.dice
        name = dice.choice(["host", self._name(stages)])
        # A host that is told to step by 1e9 is not finite by itself.
        amount = dice.choice([0.0, 1e-3] if name == "host" else [0.0, 1e-3, 0.5, 1e9])
        values = {dice.choice(["lr", "weight_decay", "beta1", "nonsense"]): amount}
        release = [dice.choice(["lr", "weight_decay"])] if dice.random() < 0.5 else []
        if dice.random() < 0.3:
            values = {}
        adjustment = pb.OptimizerAdjustment(optimizer_id=name, hyperparameters=values, release=release)
        return pb.AdaptationCommand(version=1, command_id="adjust", optimizer_adjustment=adjustment)

    def _pause(self, stages: Mapping[str, int]) -> Command:
        pause = pb.PauseCommand(seed_id=self._name(stages), resume=self.dice.random() < 0.5)
        return pb.AdaptationCommand(version=1, command_id="pause", pause_command=pause)

    def _breaker(self, stages: Mapping[str, int]) -> Command:
        state = self.dice.choice(pb.CircuitBreakerState.values())
        breaker = pb.CircuitBreakerCommand(
            seed_id=self._name(stages), desired_state=cast("pb.CircuitBreakerState", state)
        )
        return pb.AdaptationCommand(version=1, command_id="breaker", circuit_breaker=breaker)

    def _prune(self, stages: Mapping[str, int]) -> Command:
        dice = self.dice
        if not self.weights or dice.random() < 0.4:
            said = lift("by the dice")
        else:
            name, _, num = dice.choice(self.weights).partition(":")
            said = response(mask(name, [dice.randrange(int(num))], int(num)))
        return pb.AdaptationCommand(version=1, command_id="prune", pruning_masks=said)

    def _emergency(self, stages: Mapping[str, int]) -> Command:
        level = self.dice.choice(
            [value for value in pb.EmergencyLevel.values() if value != pb.EmergencyLevel.EMERGENCY_HALT]
        )
        emergency = pb.EmergencyCommand(level=cast("pb.EmergencyLevel", level), reason="by the dice")
        return pb.AdaptationCommand(version=1, command_id="emergency", emergency_command=emergency)


CREATED: Sequence[Mapping[str, float]] = (
    {"lr": 0.02},
    {"lr": 0.02, "weight_decay": 0.1, "warmup_steps": 3},
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.9, "nesterov": 1.0},
    {"lr": 0.01, "fused": 1.0},
    {"lr": -1.0},
    {"lr": 0.1, "beta1": 0.5, "momentum": 0.5},
)


def prunable(host: torch.nn.Module) -> list[str]:
    """Matrices of linear layers and convolutions, each with the number of its channels."""
    kinds = torch.nn.Linear, torch.nn.Conv2d
    named = [(name, module) for name, module in host.named_modules() if type(module) in kinds]
    return [f"{name}.weight:{module.get_parameter('weight').shape[0]}" for name, module in named]


def rolled_back(emergency: bool = False) -> pb.AdaptationCommand:
    command = pb.RollbackCommand(target_step=0, emergency=emergency)
    return pb.AdaptationCommand(version=1, command_id="rollback", rollback_command=command)
