"""A session without a runtime beside it, steered by orders as a run's decisions would."""

from __future__ import annotations

from typing import Any

from esper.leyline import contracts as pb
from esper.session.session import Session


def on_seed(
    run: Session,
    operation: pb.SeedOperation,
    seed_id: str,
    *,
    site: str = "",
    blueprint_id: str = "",
    parameters: dict[str, float] | None = None,
) -> pb.CommandReceipt:
    """Carry this out before the next step, and say what became of it."""
    seed = pb.SeedCommand(
        operation=operation, seed_id=seed_id, site=site, blueprint_id=blueprint_id, parameters=parameters
    )
    return _carried_out(run, adaptation=pb.AdaptationCommand(version=1, seed_command=seed))


def own_optimizer(run: Session, seed_id: str, lr: float) -> pb.CommandReceipt:
    """AdamW of the seed's own."""
    kind = pb.OptimizerCommandType.OPTIMIZER_COMMAND_CREATE_SEED
    command = pb.OptimizerCommand(version=1, command_type=kind, optimizer_id=seed_id, hyperparameters={"lr": lr})
    return _carried_out(run, optimizer=command)


def is_applied(receipt: pb.CommandReceipt) -> bool:
    return receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED


def _carried_out(run: Session, **command: Any) -> pb.CommandReceipt:
    order = pb.CommitOrder(commands=[pb.OpenedCommand(**command)])
    (receipt,) = run.status.steering.carry_out(order, run.step_number, run.epoch)
    return receipt
