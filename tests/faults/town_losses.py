"""History lost below a real coordinator, a runtime beside its trainer, and both aggregators: rounds must go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from esper.bus import names
from esper.bus.embedded import EmbeddedRedis
from esper.bus.names import new_run_id
from tests.faults.row import Result
from tests.system.town import Town, rate

RESUMED_S = 5.0
PATIENCE_S = 20.0


def lose_below_a_town(directory: Path, num_losses: int, result: Result) -> None:
    """Each loss, then a command: how long until the trainer has carried it out. Trains for as long as it takes."""
    directory.mkdir()
    with EmbeddedRedis(directory / "redis") as server:
        town = Town(server, new_run_id("town"), directory)
        try:
            trained(town, 0.05)
            for number, loss in enumerate(losses(town.run_id, num_losses)):
                town.settle_down()
                town.order(*loss)
                seconds = trained(town, 0.04 - 0.001 * number)
                result.count(f"town_{loss[0].lower()}")
                result.sample("town_resumed_s", seconds)
                result.expect_soon(
                    seconds <= RESUMED_S, f"a command took effect {seconds:.1f} s after {' '.join(loss)}"
                )
            said = town.log("coordinator") + town.log("runtime")
            result.expect("Traceback" not in said, f"a process of the town had a traceback: {said[-800:]}")
        finally:
            town.close()


def losses(run_id: str, count: int) -> list[Sequence[str]]:
    kinds = [
        ("FLUSHALL",),
        ("DEL", names.key(run_id, "commands")),
        ("XGROUP", "DESTROY", names.key(run_id, "commands"), "coordinator"),
        ("DEL", names.key(run_id, "decisions")),
        ("XGROUP", "DESTROY", names.key(run_id, "decisions"), "worker-0"),
    ]
    return [kinds[number % len(kinds)] for number in range(count)]


def trained(town: Town, value: float) -> float:
    """Publish a learning rate and train on until it is used; seconds, infinite where it never is."""
    began = time.monotonic()
    town.publish(rate(value))
    while town.run.optimizers.hyperparameters()["lr"] != value:
        if time.monotonic() - began > PATIENCE_S:
            return float("inf")
        town.step()
    return time.monotonic() - began
