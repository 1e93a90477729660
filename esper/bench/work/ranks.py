"""One rank with AdamW's moments and seeds beside it: its snapshots, rollbacks and checkpoints."""

from __future__ import annotations

import os
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from esper.bench.arm import Ready
from esper.bench.work.overheads import digest
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.keyed import KeyringSigner
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState
from esper.tolaria.checkpoints.store import Store
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.state.snapshot import Snapshots

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
        self.store = Store(self.folder, signer, keep=2)
        self.checkpoints = Checkpoints(state, self.store, signer)
        self.live = self.tensors()
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

    def tensors(self) -> list[Tensor]:
        """The model's parameters and their moments, as they hang there now."""
        moments = [value for kept in self._host.state.values() for value in kept.values()]
        return [each.detach() for each in (*self.model.parameters(), *moments)]

    @torch.no_grad()
    def harm(self) -> None:
        """What a rollback is there for."""
        torch._foreach_add_(self.tensors(), 1.0)

    def state(self) -> bytes:
        """Bit for bit."""
        return digest(self.tensors())

    @property
    def seed_bytes(self) -> int:
        return sum(seed.num_bytes for seed in self.executor.seeds.values())

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


def copied_back(width: int = WIDTH) -> Ready:
    """As many bytes as a rollback puts back, and nothing else."""
    rank = Rank(width)
    return Ready(rank.copy_back, answer=rank.state, before=rank.harm, close=rank.close)


def snapped(width: int = WIDTH) -> Ready:
    """It answers with what its newest snapshot brings back."""
    rank = Rank(width)

    def answer() -> bytes:
        rank.harm()
        rank.roll_back()
        return rank.state()

    return Ready(rank.snapshot, answer, close=rank.close)


def rolled_back(width: int = WIDTH) -> Ready:
    rank = Rank(width)
    rank.snapshot()
    return Ready(rank.roll_back, answer=rank.state, before=rank.harm, close=rank.close)


def written() -> Ready:
    """An emergency checkpoint's bytes, its tensors first, written and synced: the least that a durable write takes."""
    rank = Rank()
    tensors, *others = (each.read_bytes() for each in sorted(rank.emergency().iterdir(), reverse=True))
    path, blob = rank.folder / "plain", b"".join((tensors, *others))

    def answer() -> bytes:
        return sha256(path.read_bytes()[: len(tensors)]).digest()

    return Ready(lambda: write(path, blob), answer, close=rank.close)


def in_emergency() -> Ready:
    """It answers with the tensors of one that verifies. RuntimeError where they are fewer bytes than the seeds' weights
    with two moments each."""
    rank = Rank()

    def answer() -> bytes:
        tensors, least = rank.store.read(rank.emergency())[1], 3 * rank.seed_bytes
        if len(tensors) < least:
            raise RuntimeError(f"{len(tensors)} bytes were saved, expected {least} or more")
        return sha256(tensors).digest()

    return Ready(rank.emergency, answer, close=rank.close)


def write(path: Path, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
