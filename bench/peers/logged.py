"""Four metrics of a training step, told in each library's own way. The step itself is taken before, and not timed.

esper's is the whole of run.step(): steering and barriers besides, and everything its runtime needs to carry on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from esper.bench.work.hosts import SMALL, Bare

RATE, ACCURACY, STEP_MS = 0.01, 0.9375, 1.5
LOAD_PER_S = 32.0  # packets of a neighbour: what its surroundings bring along
NUM_WARM = 32


@dataclass(slots=True)
class Logger:
    """`tell` is timed. `names`: of the metrics that were told, as somebody who reads them finds them."""

    tell: Callable[[int, Tensor], object]
    names: Callable[[], list[str]]
    stack: ExitStack = field(default_factory=ExitStack)
    bare: Bare = field(default_factory=lambda: Bare(SMALL))
    num_steps: int = 0

    def step_s(self) -> float:
        """Take a step, tell of it: seconds of the telling."""
        loss = self.bare.step().detach()
        self.num_steps += 1
        began = time.perf_counter()
        self.tell(self.num_steps, loss)
        return time.perf_counter() - began


_opened: list[Logger] = []


async def opened(url: str, directory: str, which: str) -> list[str]:
    """Begin to log, and get warm; the names of what was told."""
    torch.set_num_threads(1)
    _opened.append(LOGGERS[which](directory))
    for _ in range(NUM_WARM):
        _opened[-1].step_s()
    return _opened[-1].names()


async def steps(url: str, directory: str, num: int) -> list[float]:
    """Milliseconds that the telling of each of so many steps took."""
    return [_opened[-1].step_s() * 1e3 for _ in range(num)]


async def close(url: str, directory: str) -> None:
    _opened.pop().stack.close()


def ours(directory: str) -> Logger:
    """A run of one rank with four dormant slots, with its runtime, coordinator, tiers and Redis beside it."""
    from esper.bench.beside.surroundings import surroundings
    from esper.bench.work.attached import attached

    stack = ExitStack()
    around = stack.enter_context(surroundings(LOAD_PER_S))
    run, _ = stack.enter_context(attached(SMALL, around))
    run.note(accuracy=ACCURACY)

    def tell(number: int, loss: Tensor) -> None:
        with run.step() as step:
            step.loss(loss)

    def names() -> list[str]:
        run.exchange.store_rows(run.step_number - 1)
        return sorted(run.exchange.rows.last)

    return Logger(tell, names, stack)


def tensorboard(directory: str) -> Logger:
    """torch.utils.tensorboard: add_scalar four times; a thread of its writes them, from a queue of ten."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    stack = ExitStack()
    place = stack.enter_context(tempfile.TemporaryDirectory(dir=directory))
    writer = SummaryWriter(place)
    stack.callback(writer.close)

    def tell(number: int, loss: Tensor) -> None:
        writer.add_scalar("loss", loss, number)
        writer.add_scalar("lr", RATE, number)
        writer.add_scalar("accuracy", ACCURACY, number)
        writer.add_scalar("step_ms", STEP_MS, number)

    def names() -> list[str]:
        writer.flush()
        found = EventAccumulator(place)
        found.Reload()
        return sorted(found.Tags()["scalars"])

    return Logger(tell, names, stack)


def wandb_offline(directory: str) -> Logger:
    """One log() of a dict; a process beside the trainer writes it to a file. Nothing leaves the machine."""
    import wandb

    stack = ExitStack()
    place = stack.enter_context(tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True))
    settings = wandb.Settings(mode="offline", silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    run = wandb.init(project="bench", dir=place, settings=settings)
    stack.callback(run.finish)

    def tell(number: int, loss: Tensor) -> None:
        run.log({"loss": loss, "lr": RATE, "accuracy": ACCURACY, "step_ms": STEP_MS})

    return Logger(tell, lambda: sorted(name for name in dict(run.summary) if not name.startswith("_")), stack)


def read(directory: str) -> Logger:
    """The least that a logger can do: read the loss."""
    return Logger(lambda number, loss: loss.item(), lambda: ["loss"])


LOGGERS: dict[str, Callable[[str], Logger]] = {
    "esper": ours,
    "TensorBoard": tensorboard,
    "W&B offline": wandb_offline,
    "loss.item()": read,
}
