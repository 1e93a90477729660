"""Keys, stores and a rank with checkpoints, for their tests."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from esper.kasmina.executor import Executor
from esper.kasmina.gates.evidence import Sources
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.tolaria.checkpoints.blob import marks_of
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.keyed import KeyringSigner
from esper.tolaria.checkpoints.manifest import FULL, Manifest, Place
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState
from esper.tolaria.checkpoints.store import Checkpoint, Store
from esper.tolaria.checkpoints.tree import pack
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.state.snapshot import Snapshots
from esper.tolaria.state.states import TrainingStates
from esper.tolaria.steering import Steering
from tests.seed_kit import SETTINGS, Host, Op, batch, held_out, loss_of, new_host, optimizer_of
from tests.session_kit import Command, on_seed, own_optimizer

RUN = "alone-12345678"
KEYS = MasterKeyring.new(time.time_ns())


def keyring(run: str = RUN, keys: MasterKeyring = KEYS) -> RoleKeyring:
    return keys.derive(run, [Role.WORKER])


def signer(run: str = RUN, keys: MasterKeyring = KEYS) -> KeyringSigner:
    return KeyringSigner(keyring(run, keys))


def store_at(folder: Path, keep: int = 3) -> Store:
    return Store(folder, signer(), keep)


def put(store: Store, step: int, state: Any = None, by: KeyringSigner | None = None, **place: Any) -> Checkpoint:
    """A checkpoint of some state, signed by a worker of the run."""
    tree, blob = pack({"w": torch.arange(64.0) + step} if state is None else state)
    place = {"run_id": RUN, "made_ns": time.time_ns(), **place}
    return store.save(Manifest(FULL, Place(step=step, **place), tree, marks_of(blob)), blob, by or signer())


class Training:
    """A rank in training with everything that a session joins, but for the runtime beside it."""

    def __init__(self, folder: Path, host: Host | None = None, *, optimizer: str = "sgd", **options: Any) -> None:
        self.host = host or new_host()
        sources = Sources(holdout=held_out(), clock=lambda: 0.0)
        self.executor = Executor(self.host, ("body", "head"), run_id=RUN, settings=SETTINGS, sources=sources)
        self.optimizer = optimizer_of(optimizer, list(self.host.parameters()))
        around = Surroundings(model=self.host.named_parameters)
        self.optimizers = Optimizers(self.optimizer, reduce=SeedReducer(), around=around)
        self.fossils = FossilGradients(lambda flat: flat)
        self.pruning = Pruning(self.host, KasminaCheckpointPruningConfig(importance_every=0))
        named = OptimizerState(self.optimizers, self.optimizer, lambda: dict(self.host.named_parameters()))
        state = RankState(self.host, named, self.executor.durable(), self.fossils, options.pop("loader", None))
        self.checkpoints = Checkpoints(state, store_at(folder, options.pop("keep", 3)), signer(), **options)
        snapshots = Snapshots(self.host, self.optimizers)
        self.states = TrainingStates(snapshots, self.executor, self.fossils, self.pruning, self.checkpoints)
        self.steering = Steering(
            "w0", self.executor, self.optimizers, self.states, self.fossils, lambda: 0, self.pruning
        )
        self.step = 1

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.checkpoints.at_boundary(self.step, 0)
            self.executor.begin_step(self.step, 0)
            x, targets = batch(self.step)
            loss = loss_of(nn.functional.dropout(self.host(x), 0.1), targets).mean()
            torch.autograd.backward(loss)
            self.optimizer.step(partial(float, loss.detach()))
            self.optimizers.reduce(self.executor.learning())
            gradients = [each.grad for each in self.host.parameters() if each.grad is not None]
            self.executor.observe(gradients, self.step)
            self.optimizers.step(self.step)
            self.optimizer.zero_grad()
            self.executor.note_loss(loss)
            self.step += 1

    def order(self, *commands: Command, snapshot_step: int = 0) -> list[pb.CommandReceipt]:
        """Carry these out before the next step; the coordinator names a rollback's `snapshot_step`."""
        self.checkpoints.stand_before(self.step, 0)
        opened = [
            pb.OpenedCommand(
                ref=pb.CommittedCommand(command_id=each.command_id, snapshot_step=snapshot_step),
                **{"adaptation" if isinstance(each, pb.AdaptationCommand) else "optimizer": each},  # type: ignore[arg-type]
            )
            for each in commands
        ]
        commit = pb.BarrierCommit(version=1, effective_step=self.step)
        order = pb.CommitOrder(commit=commit, commands=opened)
        receipts = self.steering.carry_out(order, self.step, 0)
        self.checkpoints.note(order)
        return receipts

    def germinate(self, seed_id: str = "s0", site: str = "body", blueprint: str = "mlp") -> None:
        """And start to train it, with an optimizer of its own."""
        germinate = on_seed(Op.SEED_OP_GERMINATE, seed_id, site=site, blueprint_id=blueprint)
        self._applied(germinate, own_optimizer(seed_id, 0.02), on_seed(Op.SEED_OP_START_TRAINING, seed_id))

    def roll_back(self, snapshot_step: int) -> pb.CommandReceipt:
        command = pb.AdaptationCommand(version=1, command_id="back", rollback_command=pb.RollbackCommand())
        return self.order(command, snapshot_step=snapshot_step)[0]

    def do(self, operation: pb.SeedOperation, seed_id: str = "s0") -> None:
        self._applied(on_seed(operation, seed_id))

    def _applied(self, *commands: Command) -> None:
        refused = [each for each in self.order(*commands) if each.status != pb.ReceiptStatus.RECEIPT_APPLIED]
        assert not refused, refused

    def raise_seed(self, *, fossilize: bool = True, blueprint: str = "mlp") -> None:
        """Take s0 through its stages, with the steps that each needs."""
        self.train(1)
        self.germinate(blueprint=blueprint)
        self.train(30)
        moves = [(Op.SEED_OP_START_GRAFTING, 12), (Op.SEED_OP_STABILIZE, 3), (Op.SEED_OP_EVALUATE, 2)]
        for operation, num_steps in [*moves, *([(Op.SEED_OP_FOSSILIZE, 3)] if fossilize else [])]:
            self.do(operation)
            self.train(num_steps)

    def live_on(self) -> None:
        """Through all stages, a rollback behind the last, and all of it once more; a second seed trains."""
        self.raise_seed(fossilize=False)
        self.states.take(self.step)
        then = self.step
        self._fossil_and_second(4)
        self.roll_back(then)
        self._fossil_and_second(2)

    def _fossil_and_second(self, num_steps: int) -> None:
        self.do(Op.SEED_OP_FOSSILIZE)
        self.germinate("s1", "head", "lora")
        self.train(num_steps)

    def stages(self) -> dict[str, str]:
        return {
            each.seed_id: pb.SeedLifecycleStage.Name(each.stage).removeprefix("SEED_STAGE_")
            for each in self.executor.states()
        }

    def everything(self) -> dict[str, Tensor]:
        """All weights and buffers, and all that the optimizers remember."""
        found = {name: each.detach().clone() for name, each in _tensors_of(self.host)}
        for seed_id, seed in self.executor.seeds.items():
            held = [] if seed.module is None else _tensors_of(seed.module)
            found |= {f"{seed_id}/{name}": each.detach().clone() for name, each in held}
        kept = self.checkpoints.state.optimizers.dump()
        for owner, states in (("host", kept["host"]), *((n, s["moments"]) for n, s in kept["seeds"].items())):
            rows = states.items() if isinstance(states, dict) else enumerate(states)
            for name, state in rows:
                values = {f"{owner}/{name}/{key}": tree_leaves(value) for key, value in state.items()}
                found |= {
                    f"{key}/{number}": torch.as_tensor(value).clone()
                    for key, leaves in values.items()
                    for number, value in enumerate(leaves)
                    if value is not None
                }
        return found


def _tensors_of(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def resumed(folder: Path, optimizer: str = "sgd", host: Host | None = None, every: int = 0) -> Training:
    """As another process goes on from the newest checkpoint below this folder, which there must be."""
    torch.manual_seed(99)  # another process draws otherwise
    again = Training(folder, host, optimizer=optimizer, every=every)
    place = again.checkpoints.resume()
    assert place is not None
    again.step = place.step
    return again


class Wider(Host):
    """The host with another width."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 7), nn.Linear(7, 3)
