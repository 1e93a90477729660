"""What a trainer hears of commands before they are judged."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.seal import Opened


def foresight(opened: Opened) -> list[pb.ToTrainer]:
    """A germination, whose kernel takes time to make: in a fast loop its commit comes with the step of its effect."""
    message = opened.message
    if not isinstance(message, pb.AdaptationCommand):
        return []
    command = message.seed_command
    if command.operation != pb.SeedOperation.SEED_OP_GERMINATE:
        return []
    return [pb.ToTrainer(foreseen=command)]
