"""One rank with AdamW's moments and seeds beside it: its snapshots, rollbacks and checkpoints."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from esper.bench.arm import Ready
from esper.bench.work.overheads import digest
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

WIDTH, NUM_LAYERS, RUN = 512, 5, "bench-00000000"
NUM_SEEDS = 4


class Rank:
    """The model with AdamW's moments, and seeds that train beside it. Its checkpoints lie in a folder of its own."""

    def __init__(self, width: int = WIDTH) -> None:
        """1.3 M parameters, or 5.2 M with a width of 1,024."""
        self.width = width
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        self.folder = Path(self._directory.name)
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(NUM_LAYERS)))
        self._host = torch.optim.AdamW(self.model.parameters())
        self.executor = Executor(self.model, [str(at) for at in range(NUM_SEEDS)], run_id=RUN, settings=KasminaConfig())
        self.optimizers = Optimizers(self._host, reduce=SeedReducer())
        self._grow()
        named = OptimizerState(self.optimizers, self._host, lambda: dict(self.model.named_parameters()))
        state = RankState(self.model, named, self.executor.durable(), FossilGradients(lambda flat: flat))
        signer = KeyringSigner(MasterKeyring.new(time.time_ns()).derive(RUN, [Role.WORKER]))
        self.snapshots = Snapshots(self.model, self.optimizers)
        self.checkpoints = Checkpoints(state, Store(self.folder, signer, keep=2), signer)
        moments = [value for kept in self._host.state.values() for value in kept.values()]
        self.live: list[Tensor] = [each.detach() for each in (*self.model.parameters(), *moments)]
        self.kept = [each.clone() for each in self.live]
        self.step = 0

    def close(self) -> None:
        self._directory.cleanup()

    def _grow(self) -> None:
        """Each seed with moments of its own."""
        self._train()
        for at in range(NUM_SEEDS):
            for operation in (pb.SeedOperation.SEED_OP_GERMINATE, pb.SeedOperation.SEED_OP_START_TRAINING):
                command = pb.SeedCommand(seed_id=f"s{at}", operation=operation, site=str(at), blueprint_id="lora")
                self.executor.apply(command, 1, 0)
            self.optimizers.create(self.executor.seeds[f"s{at}"])
        self._train()
        self.optimizers.step(2)

    def _train(self) -> None:
        self.model(torch.randn(4, self.width)).square().mean().backward()
        self._host.step()
        self._host.zero_grad()

    @torch.no_grad()
    def harm(self) -> None:
        """What a rollback is there for."""
        torch._foreach_add_(list(self.model.parameters()), 1.0)

    def weights(self) -> bytes:
        return digest(list(self.model.parameters()))

    def copy_back(self) -> None:
        torch._foreach_copy_(self.live, self.kept)

    def snapshot(self) -> None:
        self.step += 1
        self.snapshots.take(self.step)

    def roll_back(self) -> None:
        self.snapshots.restore(self.step, lambda _: self.executor.seeds)

    def save(self) -> Path:
        self.step += 1
        return self.checkpoints.save(self.step)

    def restore(self) -> None:
        self.checkpoints.restore(self.step, self.step + 1)

    def emergency(self) -> Path:
        return self.checkpoints.emergency("bench")


def copied_back() -> Ready:
    """As many bytes as a rollback puts back, and nothing else."""
    rank = Rank()
    return Ready(rank.copy_back, answer=rank.weights, before=rank.harm, close=rank.close)


def snapped() -> Ready:
    rank = Rank()
    return Ready(rank.snapshot, close=rank.close)


def rolled_back() -> Ready:
    rank = Rank()
    rank.snapshot()
    return Ready(rank.roll_back, answer=rank.weights, before=rank.harm, close=rank.close)


def written() -> Ready:
    """The bytes of an emergency checkpoint, written and synced: the least that a durable write takes."""
    rank = Rank()
    blob = b"".join(each.read_bytes() for each in sorted(rank.emergency().iterdir()))
    return Ready(lambda: write(rank.folder / "plain", blob), close=rank.close)


def in_emergency() -> Ready:
    rank = Rank()
    return Ready(rank.emergency, close=rank.close)


def write(path: Path, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
