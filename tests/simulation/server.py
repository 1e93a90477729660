"""A model with every command that it knows."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import groups, plain, scripts
from tests.simulation.model import Model

COMMANDS = {**plain.COMMANDS, **groups.COMMANDS, **scripts.COMMANDS}


def server(clock: Callable[[], int], version: tuple[int, int], entry_clock: Callable[[], int] | None = None) -> Model:
    """Of version 6.2 or 7.0. `clock` tells milliseconds; `entry_clock`, where given, those in ids of new entries."""
    return Model(COMMANDS, version, clock, entry_clock)
