"""Sessions without a runtime beside them, steered by orders that a test hands to their boundary."""

from __future__ import annotations

from pathlib import Path
from secrets import token_bytes
from typing import Any

import torch
from torch import nn

import esper
from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import batch, loss_of

NOWHERE = {"ESPER_REDIS_URL": "unix:///nonexistent/redis.sock"}
NO_RUN = {"ESPER_RUN": ""}
UNSTEERED = "unsteered"
"""Id of the run of a session that joins none."""
Command = pb.AdaptationCommand | pb.OptimizerCommand


def unsteered(host: nn.Module, optimizer: torch.optim.Optimizer, *sites: str, **options: Any) -> Session:
    """attach() where no run is named, so that no runtime is started: everything but the link is there."""
    return esper.attach(host, optimizer=optimizer, sites=sites, required=False, environment=NO_RUN, **options)


def on_seed(operation: pb.SeedOperation, seed_id: str = "s0", **fields: Any) -> pb.AdaptationCommand:
    seed = pb.SeedCommand(operation=operation, seed_id=seed_id, **fields)
    return pb.AdaptationCommand(
        version=1,
        command_id=f"{seed_id}-{pb.SeedOperation.Name(operation)}",
        command_type=pb.CommandType.COMMAND_SEED,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        seed_command=seed,
    )


def own_optimizer(seed_id: str, lr: float) -> pb.OptimizerCommand:
    return pb.OptimizerCommand(
        version=1,
        command_id=f"{seed_id}-optimizer",
        command_type=pb.OptimizerCommandType.OPTIMIZER_COMMAND_CREATE_SEED,
        optimizer_id=seed_id,
        hyperparameters={"lr": lr},
    )


def order(run: Session, *commands: Command) -> None:
    """Have these carried out before the next step."""
    boundary, opened = run.exchange.boundary, []
    for command in commands:
        # Each command is sealed anew, as the controller does: no two envelopes are alike.
        ref = pb.CommittedCommand(command_id=command.command_id, envelope_digest=token_bytes(32))
        body = {"adaptation" if isinstance(command, pb.AdaptationCommand) else "optimizer": command}
        opened.append(pb.OpenedCommand(ref=ref, **body))  # type: ignore[arg-type]
    commit = pb.BarrierCommit(version=1, round=boundary.round_applied + 1, effective_step=run.step_number)
    boundary.on_commit(pb.CommitOrder(commit=commit, commands=opened))


def backward(host: nn.Module, number: int) -> torch.Tensor:
    """Forward and backward of a batch that is a function of the step's number."""
    inputs, targets = batch(number)
    loss = loss_of(host(inputs), targets).mean()
    torch.autograd.backward(loss)
    return loss


def train(run: Session, host: nn.Module, num_steps: int) -> None:
    for _ in range(num_steps):
        with run.step() as step:
            step.loss(backward(host, run.step_number))
            run.optimizer.step()
            run.optimizer.zero_grad()


def train_bare(host: nn.Module, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    for number in range(1, num_steps + 1):
        backward(host, number)
        optimizer.step()
        optimizer.zero_grad()


def told(run: Session) -> list[tuple[str, dict[str, str]]]:
    """Events that wait for the runtime: what happened, and its facts."""
    table = run.exchange.rows.table()
    assert table is not None
    return [(event.description, dict(event.attributes)) for event in table.events]


def joined(folder: Path, keyring: Path, host: nn.Module, *, resume: bool = False) -> Session:
    return esper.attach(
        host,
        optimizer=torch.optim.SGD(host.parameters(), lr=0.01),
        sites=["body"],
        required=False,
        environment=NO_RUN | {"ESPER_KEYRING": str(keyring)},
        checkpoints=folder,
        checkpoint_every=2,
        resume=resume,
    )
