"""Ranges of the commands that a controller gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from esper.leyline import contracts as pb
from esper.leyline.validate import bounds
from esper.leyline.validate.pruning import pruning_request, pruning_response

NUM_ANNOTATIONS = 16

_Kind = pb.CommandType


def adaptation_command(command: pb.AdaptationCommand) -> None:
    """One command of the controller: the type it names agrees with the one it carries."""
    command_type = command.command_type
    if not 0 < len(command.command_id) <= bounds.SHORT_ID:
        bounds.name("command_id", command.command_id)
    found = _BODIES.get(command_type)
    if found is None:
        bounds.known("command_type", command_type, _Kind.DESCRIPTOR)
    if command.priority not in _PRIORITIES:
        bounds.known("priority", command.priority, pb.MessagePriority.DESCRIPTOR, unknown=True)
    if len(command.issued_by) > bounds.SHORT_NAME:
        bounds.text("issued_by", command.issued_by, bounds.NAME_BYTES)
    if command.annotations:
        bounds.texts("annotations", command.annotations, NUM_ANNOTATIONS)
    field, rule = found or _BODIES[command_type]
    carried = command.WhichOneof("command")
    if carried != field:
        raise bounds.refuse("command", carried, f"{field}, as command_type {_Kind.Name(command_type)} says")
    rule(getattr(command, field))


def optimizer_command(command: pb.OptimizerCommand) -> None:
    """One command to an optimizer."""
    bounds.name("command_id", command.command_id)
    bounds.known("command_type", command.command_type, pb.OptimizerCommandType.DESCRIPTOR)
    if command.command_type != _REGISTER_TEACHER:
        bounds.name("optimizer_id", command.optimizer_id)
    bounds.text("optimizer_id", command.optimizer_id)
    bounds.numbers("hyperparameters", command.hyperparameters)
    bounds.finite("grad_clip_norm", command.grad_clip_norm)
    bounds.at_least("grad_clip_norm", command.grad_clip_norm, 0)
    bounds.text("teacher_digest", command.teacher_digest)


def _seed(command: pb.SeedCommand) -> None:
    operation, parameters = command.operation, command.parameters
    if not 0 < len(command.seed_id) <= bounds.SHORT_ID:
        bounds.name("seed_id", command.seed_id)
    if not operation or operation not in _OPERATIONS:
        bounds.known("operation", operation, pb.SeedOperation.DESCRIPTOR)
    if command.alpha_curve not in _CURVES:
        bounds.known("alpha_curve", command.alpha_curve, pb.AlphaCurve.DESCRIPTOR, unknown=True)
    if parameters:
        bounds.numbers("parameters", parameters)
    if len(command.site) > bounds.SHORT_NAME:
        bounds.text("site", command.site, bounds.NAME_BYTES)
    if len(command.blueprint_id) > bounds.SHORT_ID:
        bounds.text("blueprint_id", command.blueprint_id)
    if operation == _GERMINATE:
        bounds.name("site", command.site, bounds.NAME_BYTES)
        bounds.name("blueprint_id", command.blueprint_id)
    elif operation in _BLENDING:
        if not 0 <= parameters.get("alpha", 0.0) <= 1:
            raise bounds.refuse("alpha", parameters["alpha"], "between 0 and 1")
        if parameters.get("steps", 0.0) < 0:
            bounds.at_least("steps", parameters["steps"], 0)


# The library looks an enumeration's value up by its name at each mention: 0.9 us that no command need wait for.
_GERMINATE = pb.SeedOperation.SEED_OP_GERMINATE
_BLENDING = (pb.SeedOperation.SEED_OP_START_GRAFTING, pb.SeedOperation.SEED_OP_SET_ALPHA_TARGET)
_OPERATIONS = bounds.numbers_of(pb.SeedOperation.DESCRIPTOR)
_CURVES = bounds.numbers_of(pb.AlphaCurve.DESCRIPTOR)
_PRIORITIES = bounds.numbers_of(pb.MessagePriority.DESCRIPTOR)
_REGISTER_TEACHER = pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER


def _adjustment(command: pb.OptimizerAdjustment) -> None:
    bounds.name("optimizer_id", command.optimizer_id)
    bounds.numbers("hyperparameters", command.hyperparameters)
    bounds.count("release", command.release, bounds.NUM_NUMBERS)
    bounds.names("release", command.release)
    if not command.hyperparameters and not command.release:
        raise bounds.refuse("hyperparameters", {}, "something to set or to release")
    both = sorted(set(command.release) & set(command.hyperparameters))
    if both:
        raise bounds.refuse("release", both, "hyperparameters that the same command does not set")


def _breaker(command: pb.CircuitBreakerCommand) -> None:
    bounds.name("seed_id", command.seed_id)
    bounds.known("desired_state", command.desired_state, pb.CircuitBreakerState.DESCRIPTOR)
    bounds.text("rationale", command.rationale, bounds.SENTENCE_BYTES)


def _rollback(command: pb.RollbackCommand) -> None:
    bounds.text("reason", command.reason, bounds.SENTENCE_BYTES)


def _pause(command: pb.PauseCommand) -> None:
    bounds.text("seed_id", command.seed_id)


def _emergency(command: pb.EmergencyCommand) -> None:
    bounds.known("level", command.level, pb.EmergencyLevel.DESCRIPTOR)
    bounds.text("reason", command.reason, bounds.SENTENCE_BYTES)


# The field of the oneof that goes with each type, and its rule.
_BODIES: Mapping[int, tuple[str, Callable[[Any], None]]] = {
    _Kind.COMMAND_SEED: ("seed_command", _seed),
    _Kind.COMMAND_ROLLBACK: ("rollback_command", _rollback),
    _Kind.COMMAND_OPTIMIZER: ("optimizer_adjustment", _adjustment),
    _Kind.COMMAND_CIRCUIT_BREAKER: ("circuit_breaker", _breaker),
    _Kind.COMMAND_PAUSE: ("pause_command", _pause),
    _Kind.COMMAND_EMERGENCY: ("emergency_command", _emergency),
    _Kind.COMMAND_STRUCTURAL_PRUNING: ("structural_pruning", pruning_request),
    _Kind.COMMAND_PRUNING_MASKS: ("pruning_masks", pruning_response),
}
