"""A host that fully_shard has split, whose optimizer keeps its state in 8 bits: `make test-torchao`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from esper.kernels.blueprints import BLUEPRINTS
from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from tests.checkpoint_kit import RUN, keyring
from tests.seed_kit import Host, equal, new_host
from tests.session_kit import train

optim = pytest.importorskip("torchao.optim", reason="the extra 'torchao' is not installed: make test-torchao")

EVERY = 3


class Wide(Host):
    """Its body has 4,096 weights, of which no fewer have state in 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 512), nn.Linear(512, 3)


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone. Nothing is compiled: torchao would have its step."""
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    with torch.compiler.set_stance("force_eager"):
        yield
    dist.destroy_process_group()


class Trained:
    """One process of a run, which goes on from the newest checkpoint of the one before it."""

    def __init__(self, folder: Path) -> None:
        self.host: nn.Module = new_host(Wide)
        fully_shard(self.host, mesh=init_device_mesh("cpu", (1,)))
        self.optimizer: torch.optim.Optimizer = optim.AdamW8bit(self.host.parameters(), lr=0.01)
        keyring().save(folder / "worker.json")
        chosen = SessionOptions(
            checkpoints=folder / "checkpoints",
            checkpoint_every=EVERY,
            resume=True,
            required=False,
            environment={"ESPER_KEYRING": str(folder / "worker.json")},
        )
        joining = Joining(self.host, self.optimizer, ["body"], None, chosen, WorkerIdentity.of(chosen, 0, 1), RUN)
        self.run: Session = joining.session(None, BLUEPRINTS)

    def train(self, num_steps: int) -> None:
        train(self.run, self.host, num_steps)

    def everything(self) -> dict[str, Tensor]:
        """Weights, and what the optimizer remembers, as the bytes that it is held in."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.host.named_parameters():
            for key, value in {"": parameter, **self.optimizer.state[parameter]}.items():
                held = getattr(value, "_local_tensor", value)
                inner = held.__tensor_flatten__()[0] if is_traceable_wrapper_subclass(held) else []
                found |= {f"{name} {key} {each}": getattr(held, each).detach().clone() for each in inner}
                found |= {} if inner else {f"{name} {key}": held.detach().clone()}
        return found


def test_a_resumed_run_trains_on_bit_for_bit(tmp_path: Path) -> None:
    first = Trained(tmp_path)
    first.train(EVERY + 4)

    again = Trained(tmp_path)
    assert 1 < again.run.step_number <= first.run.step_number
    again.train(first.run.step_number - again.run.step_number)

    assert torch.uint8 in {each.dtype for each in first.everything().values()}
    assert equal(again.everything(), first.everything())


def test_a_rollback_brings_back_each_bit(tmp_path: Path) -> None:
    here = Trained(tmp_path)
    here.train(2)
    at, before = here.run.step_number, here.everything()
    here.run.status.states.take(at)
    here.train(2)
    assert not equal(here.everything(), before)

    here.run.status.states.restore(at, here.run.step_number)

    assert equal(here.everything(), before)
