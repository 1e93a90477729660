"""What commands have the host's optimizer do, written down a second time: values that win, steps that are granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from esper.leyline import contracts as pb

APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED
STEP = pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP


@dataclass
class Governed:
    """By receipts alone: knows nothing of the session."""

    values: dict[str, float] = field(default_factory=dict)
    leases: list[tuple[int, int, float]] | None = None  # first, end (0: none), clip; None: all steps are granted

    def hear(self, order: pb.CommitOrder, receipts: Sequence[pb.CommandReceipt], step: int) -> None:
        for opened, receipt in zip(order.commands, receipts, strict=True):
            if receipt.status != APPLIED:
                continue
            adjustment, command = opened.adaptation.optimizer_adjustment, opened.optimizer
            if adjustment.optimizer_id == "host":
                self.values |= adjustment.hyperparameters
                for name in adjustment.release:
                    self.values.pop(name, None)
            if command.command_type == STEP and command.optimizer_id == "host":
                first = command.expected_step or step
                lease = (first, first + command.num_steps if command.num_steps else 0, command.grad_clip_norm)
                known = self.leases or []
                if lease not in known:  # it ends what has no end
                    self.leases = [*(each for each in known if each[1]), lease]

    def lease(self, step: int) -> tuple[bool, float]:
        """Whether the step is granted, and what its gradient is clipped to; 0: it is not."""
        if self.leases is None:
            return True, 0.0
        found = [clip for first, end, clip in self.leases if first <= step and (not end or step < end)]
        return bool(found), found[-1] if found else 0.0

    def rules(self, step: int) -> Rules:
        granted, clip = self.lease(step)
        return Rules(dict(self.values), granted, clip)


@dataclass(frozen=True)
class Rules:
    """Of one step."""

    values: dict[str, float] = field(default_factory=dict)
    granted: bool = True
    clip: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether only values are commanded."""
        return self.granted and not self.clip

    @contextmanager
    def over(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Its groups hold these values, and then the script's again."""
        kept = [{name: _held(group[name]) for name in names} for group, names in _named(optimizer, self.values)]
        for group, _ in _named(optimizer, self.values):
            for name, value in self.values.items():
                _write(group, name, value)
        try:
            yield
        finally:
            for group, own in zip(optimizer.param_groups, kept, strict=True):
                for name, value in own.items():
                    _write(group, name, value)


def _named(optimizer: torch.optim.Optimizer, values: dict[str, float]) -> list[tuple[dict[str, Any], set[str]]]:
    names = {"betas" if name.startswith("beta") else name for name in values}
    return [(group, names) for group in optimizer.param_groups]


def _held(value: Any) -> Any:
    return float(value) if isinstance(value, torch.Tensor) else value


def _write(group: dict[str, Any], name: str, value: Any) -> None:
    match name:
        case "beta1":
            group["betas"] = (value, group["betas"][1])
        case "beta2":
            group["betas"] = (group["betas"][0], value)
        case _ if isinstance(group[name], torch.Tensor):
            group[name].fill_(value)
        case _:
            group[name] = value
