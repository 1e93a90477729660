"""What a command or a decision does, in a few words for a person."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import EMBARGOED, operation_name, reason_name


def told(message: Message) -> str:
    """One line, without whose it is and when."""
    match message:
        case pb.AdaptationCommand():
            return _adaptation(message)
        case pb.OptimizerCommand():
            kind = _plain(pb.OptimizerCommandType.Name(message.command_type), "OPTIMIZER_COMMAND_")
            return _joined(f"optimizer of {message.optimizer_id or 'host'}: {kind}", _numbers(message.hyperparameters))
        case pb.BarrierCommit():
            return _commit(message)
        case pb.BarrierAbort():
            parts = [f"round {message.round} aborted, {reason_name(message.reason)}", message.detail]
            parts += [f"no vote of {worker}" for worker in message.missing]
            return "; ".join(part for part in parts if part)
        case pb.LeaderAnnouncement():
            return f"{message.leader} leads"
        case pb.EmergencySignal():
            level = _plain(pb.EmergencyLevel.Name(message.level), "EMERGENCY_")
            return _joined(f"{level}: {message.reason}", f"from {message.origin}")
        case _:
            return message.DESCRIPTOR.name


def counted(count: int, noun: str) -> str:
    """1 worker, 2 workers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def embargo(state: pb.SeedState, epoch: int) -> str:
    """What an embargoed seed waits for: the end of its embargo does not free its site, only a reset after it does."""
    if state.stage != EMBARGOED:
        return ""
    until = state.embargo_until_epoch
    return f"until epoch {until}" if epoch < until else f"until a reset, possible since epoch {until}"


def _adaptation(command: pb.AdaptationCommand) -> str:
    match command.WhichOneof("command"):
        case "seed_command":
            return _seed(command.seed_command)
        case "rollback_command":
            step = command.rollback_command.target_step
            where = f"to step {step}" if step else "to the newest snapshot"
            return _because(f"roll back {where}", command.rollback_command.reason)
        case "optimizer_adjustment":
            change = command.optimizer_adjustment
            released = f"release {', '.join(change.release)}" if change.release else ""
            return _joined("adjust", change.optimizer_id, _numbers(change.hyperparameters), released)
        case "circuit_breaker":
            breaker = command.circuit_breaker
            state = _plain(pb.CircuitBreakerState.Name(breaker.desired_state), "BREAKER_")
            return _because(_joined("breaker", breaker.seed_id, state), breaker.rationale)
        case "pause_command":
            word = "resume" if command.pause_command.resume else "pause"
            return f"{word} {command.pause_command.seed_id or 'the run'}"
        case "emergency_command":
            level = _plain(pb.EmergencyLevel.Name(command.emergency_command.level), "EMERGENCY_")
            return _because(f"emergency, {level}", command.emergency_command.reason)
        case other:
            return (other or "an empty command").replace("_", " ")


def _seed(command: pb.SeedCommand) -> str:
    site = f"at {command.site}" if command.site else ""
    blueprint = f"from {command.blueprint_id}" if command.blueprint_id else ""
    return _joined(_operation(command.operation), command.seed_id, site, blueprint, _numbers(command.parameters))


def _commit(commit: pb.BarrierCommit) -> str:
    parts = [f"round {commit.round} before step {commit.effective_step}"]
    if commit.commands:
        parts.append(counted(len(commit.commands), "command"))
    parts += [
        f"{_operation(request.operation)} {request.seed_id} as asked for by its ranks" for request in commit.requests
    ]
    if commit.snapshot:
        parts.append("snapshot")
    parts += [f"{worker} deviates" for worker in commit.deviating]
    parts += [f"gradients of {worker} deviate" for worker in commit.deviating_gradients]
    parts += [f"{worker} is quarantined" for worker in commit.quarantined]
    return ", ".join(parts)


def _operation(operation: pb.SeedOperation) -> str:
    return operation_name(operation).lower().replace("_", " ")


def _numbers(values: Mapping[str, float]) -> str:
    said = ", ".join(f"{name}={values[name]:g}" for name in sorted(values))
    return f"({said})" if said else ""


def _because(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _plain(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower().replace("_", " ")
