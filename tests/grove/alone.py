"""What befalls one rank of three alone: `python -m tests.grove.alone`. All go on, or those that wait for it name it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from structlog.testing import capture_logs
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from esper.errors import CheckpointError, TrainingError
from esper.leyline import contracts as pb
from esper.session import joining
from esper.session.options import SessionOptions, WorkerIdentity
from esper.tolaria.checkpoints.store import Store
from esper.tolaria.state.digest import parameter_digest
from tests.garden.joined import RUN, Lenient, acted, keyring_at
from tests.garden.odd import ALL
from tests.garden.plan import Act
from tests.grove.life import heard
from tests.session_kit import on_seed
from tests.site_kit import OPEN

WORLD_SIZE, ALONE = 3, 1
TIMEOUT_S, PATIENCE_S = 6.0, 90.0  # of our collectives, which have 60 s else; and for a rank to say how it fared
Op = pb.SeedOperation
LIFE = [Op.SEED_OP_START_TRAINING, Op.SEED_OP_START_GRAFTING, Op.SEED_OP_STABILIZE, Op.SEED_OP_EVALUATE]
LIFE.append(Op.SEED_OP_FOSSILIZE)
GOES_ON, NAMES_IT = "", f"with rank {ALONE};"


class Host(nn.Module):
    """With a layer that can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.extra, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.leaves_out = False

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.body(x))
        z: Tensor = self.head(y if self.leaves_out else y + self.extra(y))
        return z


class Rank:
    """A script with DDP and its session."""

    def __init__(self, rank: int, folder: Path) -> None:
        torch.manual_seed(1)
        self.rank, self.is_alone, self.host, self.num_acts = rank, rank == ALONE, Host(), 0
        self.model: Any = DistributedDataParallel(self.host, find_unused_parameters=True)
        self.ddp = self.model
        self.optimizer = torch.optim.SGD(self.host.parameters(), lr=0.1)
        chosen = SessionOptions.of(
            {
                "settings": replace(OPEN, window=2, blend_steps=0, read_every=4),
                "required": False,
                "checkpoints": folder,
                "checkpoint_every": 4,
                "environment": {"ESPER_KEYRING": str(keyring_at(folder))},
            }
        )
        holdout = [(torch.randn(8, 4), torch.zeros(8))], self.loss
        identity = WorkerIdentity.of(chosen, rank, WORLD_SIZE)
        sites = ["body", "extra"]
        self.run = joining.Joining(self.ddp, self.optimizer, sites, holdout, chosen, identity, RUN).session(None, ALL)
        self.run.executor.rulings = Lenient(self.run.executor.rulings)
        self.raises_over_holdout = False

    def loss(self, output: Tensor, _: Tensor) -> Tensor:
        if self.raises_over_holdout:
            raise OSError("a file of examples is gone")
        return output.square().mean(1)

    def act(self, *commands: pb.AdaptationCommand, **more: Any) -> None:
        self.num_acts += 1
        acted(self.run, Act(self.run.step_number, commands, **more), self.num_acts)

    def grow(self, site: str, *life: pb.SeedOperation) -> None:
        """A seed there, some steps after each operation."""
        self.train(1)
        for command in (
            on_seed(Op.SEED_OP_GERMINATE, site, site=site, blueprint_id="mlp"),
            *(on_seed(operation, site) for operation in life),
        ):
            self.act(command)
            self.train(2)

    def train(self, num_steps: int, steps: bool = True) -> None:
        for _ in range(num_steps):
            generator = torch.Generator().manual_seed(100 * self.run.step_number + self.rank)
            with self.run.step() as step:
                loss = self.model(torch.randn(8, 4, generator=generator)).square().mean()
                loss.backward()
                if steps:
                    self.optimizer.step()
                self.optimizer.zero_grad()
                step.loss(loss)


def skips_an_optimizer_step(each: Rank) -> None:
    each.grow("body", *LIFE[:1])
    each.train(1, steps=not each.is_alone)
    each.train(3)


def is_closed_early_and_trains_on(each: Rank) -> None:
    each.grow("body", *LIFE[:1])
    if each.is_alone:
        each.run.close()
    each.train(3)


def runs_out_of_batches_below_join(each: Rank) -> None:
    each.grow("body", *LIFE)
    with each.ddp.join():
        each.train(3 if each.is_alone else 5)


def evaluates(each: Rank) -> None:
    each.grow("body", *LIFE)
    if each.is_alone:
        each.host.eval()(torch.randn(3, 4)).sum().backward()
        each.host.train()
        each.optimizer.zero_grad()
    each.train(3)


def raises_over_its_examples(each: Rank) -> None:
    each.raises_over_holdout = each.is_alone
    each.grow("body", *LIFE)


def leaves_a_fossil_out(each: Rank) -> None:
    each.grow("extra", *LIFE)
    each.host.leaves_out = each.is_alone
    each.train(3)


def leaves_a_fossil_out_compiled(each: Rank) -> None:
    each.grow("extra", *LIFE)
    each.model = torch.compile(each.ddp, backend="eager")
    each.train(2)
    each.host.leaves_out = each.is_alone
    each.train(3)


def has_a_full_disk(each: Rank) -> None:
    def full(*_: object, **__: object) -> None:
        raise CheckpointError("No space left on device", "here")

    if each.is_alone:
        Store.save = full  # type: ignore[method-assign, assignment]
    each.grow("body", *LIFE)


def lacks_a_checkpoint(each: Rank) -> None:
    each.train(9)
    (step, *_) = [ref.step for ref in each.run.status.states.refs()]
    if each.is_alone and each.run.checkpoints is not None:
        each.run.checkpoints._held.clear()
    each.act(goes_back=step)
    each.train(2)


CASES: dict[Callable[[Rank], None], str] = {
    skips_an_optimizer_step: NAMES_IT,
    is_closed_early_and_trains_on: NAMES_IT,
    runs_out_of_batches_below_join: NAMES_IT,
    evaluates: GOES_ON,
    raises_over_its_examples: GOES_ON,
    leaves_a_fossil_out: GOES_ON,
    leaves_a_fossil_out_compiled: GOES_ON,
    has_a_full_disk: GOES_ON,
    lacks_a_checkpoint: GOES_ON,
}


def run(case: Callable[[Rank], None], rank: int, folder: Path, line: Connection) -> None:
    """A rank's process: it says its parameters' digest, or what was raised."""
    joining.COLLECTIVE_TIMEOUT = timedelta(seconds=TIMEOUT_S)
    torch.set_num_threads(1)
    said = ""
    try:
        with capture_logs(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable()
            patience = timedelta(seconds=PATIENCE_S)
            meet = f"file://{folder}/meet"
            dist.init_process_group("gloo", meet, rank=rank, world_size=WORLD_SIZE, timeout=patience)
            each = Rank(rank, folder)
            case(each)
            said = parameter_digest(each.host.named_parameters()).hex()
    except (TrainingError, RuntimeError) as error:
        said = f"{type(error).__name__}: {error}"
    line.send(said)
    os._exit(0)  # destructors of a group wait for its threads


def wrong(case: Callable[[Rank], None], expected: str, folder: Path) -> str:
    """Why it is, if it is."""
    lines, processes = [], []
    for rank in range(WORLD_SIZE):
        mine, its = get_context("fork").Pipe()
        process = get_context("fork").Process(target=run, args=(case, rank, folder, its), daemon=True)
        process.start()
        its.close()
        lines.append(mine)
        processes.append(process)
    deadline, said = time.monotonic() + PATIENCE_S, dict[int, str]()
    while len(said) < WORLD_SIZE and (left := deadline - time.monotonic()) > 0:
        ready = wait([line for rank, line in enumerate(lines) if rank not in said], left)
        said |= {rank: str(heard(line)) for rank, line in enumerate(lines) if line in ready}
    for process in processes:
        process.kill()
        process.join()
    if len(said) < WORLD_SIZE:
        return f"ranks {sorted({*range(WORLD_SIZE)} - {*said})} hang; {said}"
    others = [each for rank, each in said.items() if rank != ALONE]
    if expected:
        fine = all(each.startswith("TrainingError") and expected in each for each in others)
    else:
        fine = len({*said.values()}) == 1 and "Error" not in others[0]
    return "" if fine else f"{said}"


def main() -> int:
    found = 0
    for case, expected in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            why = wrong(case, expected, Path(folder))
        found += bool(why)
        how = why or (f"the others end: {expected}" if expected else "all go on")
        print(f"{case.__name__}: {how}", flush=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
