"""Builds each command of the wire from plain arguments. Pure: seals nothing, sends nothing, judges nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.field_checks import chosen, number, numbers, text, texts, whole

Command: TypeAlias = pb.AdaptationCommand | pb.OptimizerCommand

CURVES: Mapping[str, pb.AlphaCurve] = {
    "linear": pb.AlphaCurve.ALPHA_CURVE_LINEAR,
    "cosine": pb.AlphaCurve.ALPHA_CURVE_COSINE,
    "sigmoid": pb.AlphaCurve.ALPHA_CURVE_SIGMOID,
}
BREAKERS: Mapping[str, pb.CircuitBreakerState] = {
    "open": pb.CircuitBreakerState.BREAKER_OPEN,
    "closed": pb.CircuitBreakerState.BREAKER_CLOSED,
}
LEVELS: Mapping[str, pb.EmergencyLevel] = {
    "notice": pb.EmergencyLevel.EMERGENCY_NOTICE,
    "elevated": pb.EmergencyLevel.EMERGENCY_ELEVATED,
    "conservative": pb.EmergencyLevel.EMERGENCY_CONSERVATIVE,
    "halt": pb.EmergencyLevel.EMERGENCY_HALT,
}
PHASES: Mapping[str, pb.PruningPhase] = {
    "validation_only": pb.PruningPhase.PRUNING_PHASE_VALIDATION_ONLY,
    "active": pb.PruningPhase.PRUNING_PHASE_ACTIVE,
    "disabled": pb.PruningPhase.PRUNING_PHASE_DISABLED,
}


def new_command_id() -> str:
    """Sixteen hexadecimal digits, unlike any drawn before."""
    return secrets.token_hex(8)


def germinate(seed: str, site: str, blueprint: str, parameters: Mapping[str, float]) -> pb.AdaptationCommand:
    """Parameters are the blueprint's; one that is not named keeps its default. auto=1: the policy advances the seed.

    A seed's name must be printable: one that can't be read can't be typed to steer it.
    """
    if not text("seed", seed).isprintable():
        raise SettingError("seed", seed, "a name of printable characters")
    body = pb.SeedCommand(
        seed_id=seed,
        operation=pb.SeedOperation.SEED_OP_GERMINATE,
        site=text("site", site),
        blueprint_id=text("blueprint", blueprint),
        parameters=numbers(parameters),
    )
    return _adaptation(pb.CommandType.COMMAND_SEED, seed_command=body)


def seed(
    seed_id: str, operation: pb.SeedOperation, parameters: Mapping[str, float] | None = None
) -> pb.AdaptationCommand:
    """An operation that needs nothing but the seed's name. Parameter auto: 1 hands it to the policy, 0 holds it."""
    body = pb.SeedCommand(seed_id=text("seed", seed_id), operation=operation, parameters=numbers(parameters or {}))
    return _adaptation(pb.CommandType.COMMAND_SEED, seed_command=body)


def blend(
    seed_id: str,
    operation: pb.SeedOperation,
    steps: float,
    alpha: float,
    curve: str,
    parameters: Mapping[str, float] | None = None,
) -> pb.AdaptationCommand:
    """START_GRAFTING or SET_ALPHA_TARGET: alpha is reached after that many steps, along the curve.

    The first takes auto as a parameter, as in `seed`.
    """
    body = pb.SeedCommand(
        seed_id=text("seed", seed_id),
        operation=operation,
        parameters=numbers({"steps": whole("steps", steps), "alpha": alpha, **(parameters or {})}),
        alpha_curve=chosen("curve", curve, CURVES),
    )
    return _adaptation(pb.CommandType.COMMAND_SEED, seed_command=body)


def adjust(
    optimizer_id: str, hyperparameters: Mapping[str, float], release: Sequence[str] = ()
) -> pb.AdaptationCommand:
    """Values set here win over the user's scheduler until their names are released."""
    body = pb.OptimizerAdjustment(
        optimizer_id=text("optimizer_id", optimizer_id),
        hyperparameters=numbers(hyperparameters),
        release=texts("release", release),
    )
    return _adaptation(pb.CommandType.COMMAND_OPTIMIZER, optimizer_adjustment=body)


def breaker(seed_id: str, state: str, rationale: str) -> pb.AdaptationCommand:
    """`open` quarantines the seed, `closed` forgets its violations."""
    body = pb.CircuitBreakerCommand(
        seed_id=text("seed", seed_id),
        desired_state=chosen("state", state, BREAKERS),
        rationale=text("rationale", rationale),
    )
    return _adaptation(pb.CommandType.COMMAND_CIRCUIT_BREAKER, circuit_breaker=body)


def pause(seed_id: str, *, resume: bool) -> pb.AdaptationCommand:
    """An empty seed id means the whole run."""
    body = pb.PauseCommand(seed_id=text("seed", seed_id), resume=resume)
    return _adaptation(pb.CommandType.COMMAND_PAUSE, pause_command=body)


def emergency(level: str, reason: str) -> pb.AdaptationCommand:
    """`halt` pauses the run at the next effective step."""
    body = pb.EmergencyCommand(level=chosen("level", level, LEVELS), reason=text("reason", reason))
    return _adaptation(
        pb.CommandType.COMMAND_EMERGENCY, pb.MessagePriority.MESSAGE_PRIORITY_CRITICAL, emergency_command=body
    )


def rollback(step: int, reason: str) -> pb.AdaptationCommand:
    """Step 0 is the newest snapshot that all ranks hold."""
    body = pb.RollbackCommand(target_step=whole("step", step), reason=text("reason", reason))
    return _adaptation(pb.CommandType.COMMAND_ROLLBACK, pb.MessagePriority.MESSAGE_PRIORITY_HIGH, rollback_command=body)


def pruning(step: int, safety_constraints: Mapping[str, float], phase: str = "validation_only") -> pb.AdaptationCommand:
    """Asks for what each channel and head is worth; `active` and `disabled` also switch pruning on or off."""
    command_id = new_command_id()
    body = pb.StructuralPruningRequest(
        request_id=command_id,
        step=whole("step", step),
        phase=chosen("phase", phase, PHASES),
        safety_constraints=numbers(safety_constraints),
    )
    return _adaptation(pb.CommandType.COMMAND_STRUCTURAL_PRUNING, structural_pruning=body)


def pruning_masks(response: pb.StructuralPruningResponse) -> pb.AdaptationCommand:
    """Has masks applied, or with `rollback_required` the last ones lifted."""
    if not isinstance(response, pb.StructuralPruningResponse):
        raise SettingError("masks", response, "a StructuralPruningResponse, as esper.kasmina.pruning.plan makes")
    return _adaptation(pb.CommandType.COMMAND_PRUNING_MASKS, pruning_masks=response)


def optimizer(
    command_type: pb.OptimizerCommandType,
    optimizer_id: str,
    *,
    hyperparameters: Mapping[str, float] | None = None,
    teacher_digest: str = "",
    generation: int = 0,
    expected_step: int = 0,
) -> pb.OptimizerCommand:
    """Generation 0 fits whatever it is; another one must be the optimizer's. A step tells a repeat from a new wish."""
    return pb.OptimizerCommand(
        version=1,
        command_id=new_command_id(),
        command_type=command_type,
        optimizer_id=text("optimizer_id", optimizer_id),
        hyperparameters=numbers(hyperparameters or {}),
        teacher_digest=text("digest", teacher_digest),
        optimizer_generation=whole("generation", generation, bits=32),
        expected_step=whole("expected_step", expected_step),
    )


def lease(optimizer_id: str, num_steps: int, expected_step: int, grad_clip_norm: float) -> pb.OptimizerCommand:
    """Grants [expected_step, expected_step + num_steps); 0 steps: unbounded, expected step 0: the effective step."""
    command = optimizer(pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP, optimizer_id)
    command.num_steps = whole("num_steps", num_steps)
    command.expected_step = whole("expected_step", expected_step)
    command.grad_clip_norm = number("grad_clip_norm", grad_clip_norm)
    return command


def _adaptation(
    command_type: pb.CommandType,
    priority: pb.MessagePriority = pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
    **body: pb.SeedCommand
    | pb.OptimizerAdjustment
    | pb.CircuitBreakerCommand
    | pb.RollbackCommand
    | pb.PauseCommand
    | pb.EmergencyCommand
    | pb.StructuralPruningRequest
    | pb.StructuralPruningResponse,
) -> pb.AdaptationCommand:
    head = pb.AdaptationCommand(version=1, command_id=new_command_id(), command_type=command_type, priority=priority)
    for name, message in body.items():
        getattr(head, name).CopyFrom(message)
    return head
