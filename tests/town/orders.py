"""What a client of a town commands, drawn."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from esper.leyline import contracts as pb
from tests.rounds import germinate, optimizer, rollback

Command: TypeAlias = pb.AdaptationCommand | pb.OptimizerCommand


def drawn(dice: Random, number: int) -> tuple[str, Command]:
    """On which log, and what: legal or not."""
    site = dice.choice(("head", "hidden", "none"))
    of_a_seed = dice.choice((germinate(f"s{number}", site), rollback(8)))
    return dice.choice((("commands", of_a_seed), ("optimizer", of_the_optimizer())))


def of_the_optimizer() -> pb.OptimizerCommand:
    return optimizer(pb.OptimizerCommandType.OPTIMIZER_COMMAND_RESET_STATE)
