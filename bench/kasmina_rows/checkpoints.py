"""Snapshots, rollbacks and checkpoints of a model of 5 M parameters, beside copying the same bytes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session.signing import KeyringSigner
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState
from esper.tolaria.checkpoints.store import Store
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.snapshot import Snapshots
from report import Figure, Report, by_round, quantile
from turns import turns

WIDTH, NUM_LAYERS, RUN = 1024, 5, "bench-00000000"
NUM_SEEDS, WARM = 4, 3


class Rank:
    """The model with AdamW's moments, and seeds that train beside it."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_LAYERS)))
        host = torch.optim.AdamW(self.model.parameters())
        self.executor = Executor(self.model, [str(at) for at in range(NUM_SEEDS)], run_id=RUN, settings=KasminaConfig())
        self.optimizers = Optimizers(host, reduce=SeedReducer())
        self._grow(host)
        named = OptimizerState(self.optimizers, host, lambda: dict(self.model.named_parameters()))
        state = RankState(self.model, named, self.executor.durable(), FossilGradients(lambda flat: flat))
        signer = KeyringSigner(MasterKeyring.new(time.time_ns()).derive(RUN, [Role.WORKER]))
        self.snapshots = Snapshots(self.model, self.optimizers)
        self.checkpoints = Checkpoints(state, Store(folder, signer, keep=2), signer)
        moments = [value for kept in host.state.values() for value in kept.values()]
        self.live: list[Tensor] = [each.detach() for each in (*self.model.parameters(), *moments)]
        self.kept = [torch.empty_like(each) for each in self.live]
        self.step = 0

    def _grow(self, host: torch.optim.Optimizer) -> None:
        """Each seed with moments of its own."""
        self._train(host)
        for at in range(NUM_SEEDS):
            for operation in (pb.SeedOperation.SEED_OP_GERMINATE, pb.SeedOperation.SEED_OP_START_TRAINING):
                command = pb.SeedCommand(seed_id=f"s{at}", operation=operation, site=str(at), blueprint_id="lora")
                self.executor.apply(command, 1, 0)
            self.optimizers.create(self.executor.seeds[f"s{at}"])
        self._train(host)
        self.optimizers.step(2)

    def _train(self, host: torch.optim.Optimizer) -> None:
        self.model(torch.randn(4, WIDTH)).square().mean().backward()
        host.step()
        host.zero_grad()

    def copy(self) -> None:
        torch._foreach_copy_(self.kept, self.live)

    def snapshot(self) -> None:
        self.step += 1
        self.snapshots.take(self.step)

    def roll_back(self) -> None:
        self.snapshots.restore(self.step, lambda _: self.executor.seeds)

    def emergency(self) -> None:
        self.checkpoints.emergency("bench")


def measure(report: Report, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        rank = Rank(Path(name))
        arms: dict[str, Callable[[], object]] = {
            "copy alone": rank.copy,
            "copy, again": rank.copy,
            "snapshot": rank.snapshot,
            "rollback": rank.roll_back,
        }
        rank.snapshot()
        _add(report, "snapshot, 5 M", turns(arms, 20 if quick else 400, warm=WARM, per_s=1e3), "copy alone")
        report.add_target("snapshot, 5 M", "p50", 20.0, "ms")
        blob = bytes(sum(each.numel() * each.element_size() for each in rank.live))
        arms = {
            "write, fsync": lambda: _write(Path(name) / "plain", blob),
            "write, fsync, again": lambda: _write(Path(name) / "plain", blob),
            "checkpoint": lambda: rank.checkpoints.save(rank.step + 1),
            "restore": lambda: rank.checkpoints.restore(rank.step + 1, rank.step + 2),
        }
        rank.checkpoints.save(rank.step + 1)
        _add(report, "checkpoint, 5 M", turns(arms, 4 if quick else 40, warm=WARM, per_s=1e3), "write, fsync")
        _emergency(report, rank, Path(name), quick)


def _emergency(report: Report, rank: Rank, folder: Path, quick: bool) -> None:
    newest = rank.checkpoints.store.read(rank.checkpoints.emergency("bench"))[1]
    arms: dict[str, Callable[[], object]] = {
        "write, fsync": lambda: _write(folder / "plain", newest),
        "write, fsync, again": lambda: _write(folder / "plain", newest),
        "emergency": rank.emergency,
    }
    samples = turns(arms, 15 if quick else 300, warm=WARM, per_s=1e3)
    _add(report, "emergency", samples, "write, fsync")
    spent = samples["emergency"]
    report.put(Figure("emergency", "emergency", "rate", 1e3 * len(spent) / sum(spent), "1/s", len(spent)))
    report.add_target("emergency", "p99", 100.0, "ms")
    report.add_target("emergency", "rate", 10.0, "1/s")


def _write(path: Path, content: bytes) -> None:
    """The least that a durable write takes."""
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


def _add(report: Report, row: str, samples: dict[str, list[float]], against: str) -> None:
    """Too few for stretches of the run: the interval comes from resampling the rounds."""
    for arm, values in samples.items():
        vs = None if arm == against else by_round(values, samples[against], against)
        report.add(row, arm, "p50", quantile(values, 0.5), "ms", len(values), vs)
        report.add(row, arm, "p99", quantile(values, 0.99), "ms", len(values))
