"""What four dormant slots add to a training step, next to the bare model. The arm is drawn at random for every step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch
from torch import nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from report import Report, options

NUM_WARM = 200
WIDTH, NUM_BLOCKS, BATCH = 128, 4, 128


def model() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(NUM_BLOCKS)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 10))


def bare(host: nn.Module) -> Callable[[int], None]:
    """A whole step: forward, backward, optimizer."""
    optimizer = torch.optim.SGD(host.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
    criterion = nn.CrossEntropyLoss()

    def turn(step: int) -> None:
        loss = criterion(host(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return turn


def with_slots(host: nn.Module) -> Callable[[int], None]:
    """The same step with four slots in the model and the executor told of each step, no seed in any slot."""
    sites = [str(at) for at in range(NUM_BLOCKS)]
    executor = Executor(
        host, sites, run_id="bench", settings=KasminaConfig(), reduce=lambda tensor: tensor, holdout=None
    )
    step_alone = bare(host)

    def turn(step: int) -> None:
        executor.begin_step(step, 0)
        step_alone(step)

    return turn


def measure(arms: dict[str, Callable[[int], None]], num: int, seed: int) -> dict[str, list[float]]:
    """Milliseconds per step of each arm; a round gives every arm one step, in an order drawn anew."""
    order, names = random.Random(seed), list(arms)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for step in range(num + NUM_WARM):
        order.shuffle(names)
        for name in names:
            start = time.perf_counter_ns()
            arms[name](step)
            samples[name].append((time.perf_counter_ns() - start) / 1e6)
    return {name: values[NUM_WARM:] for name, values in samples.items()}


def main() -> None:
    given, report = options(__doc__, quick=6_000, full=60_000), Report("step")
    torch.set_num_threads(1)
    arms = {"bare": bare(model()), "bare again": bare(model()), "four slots": with_slots(model())}
    samples = measure(arms, given.num, given.seed)
    report.add_arms("dormant slots", samples, "ms", against="bare")
    report.show(given.as_json)


if __name__ == "__main__":
    main()
