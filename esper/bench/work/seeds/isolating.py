"""What keeps a seed's gradients apart: the documents' network with two seeds, and the watch around one call of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from esper.bench.arm import Ready
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.work.allocated import peak_bytes
from esper.bench.work.overheads import digest
from esper.bench.work.seeds.grown import grow, learned
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.isolation.graph import batched_norms
from esper.kasmina.isolation.monitor import GradientIsolationMonitor, HostTensors
from esper.kasmina.slots.placeholder import GradientIsolatedSeed
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline.lifecycle import TRAINING

BATCH, FEATURES, WATCHED_FEATURES = 32, 784, 64
NUM_SEEDS = 64
SITES = {"seed1": 256, "seed2": 128}  # features at each


class Network(nn.Module):
    """TestNetworkWithSeeds of the performance-validation seed, section 2.1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(FEATURES, 256), nn.Linear(256, 128)
        self.seed1 = GradientIsolatedSeed(chunk_size=64, seed_id="test_seed_1")
        self.seed2 = GradientIsolatedSeed(chunk_size=32, seed_id="test_seed_2")
        self.output = nn.Linear(128, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.output(self.seed2(torch.relu(self.layer2(self.seed1(torch.relu(self.layer1(x)))))))
        return y


class Pass:
    """Forward and backward of the network. Gradients of the host are what two arms must agree on, bit for bit."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = Network()
        self.inputs = torch.randn(BATCH, FEATURES)
        self.seeds: list[nn.Module] = []

    def turn(self) -> None:
        self.network.zero_grad()
        self.learn()

    def learn(self) -> None:
        torch.autograd.backward(nn.functional.mse_loss(self.network(self.inputs), self.inputs))

    def gradients(self) -> bytes:
        """RuntimeError where a seed of it got none."""
        self.turn()
        for seed in self.seeds:
            if any(parameter.grad is None for parameter in seed.parameters()):
                raise RuntimeError("a seed got no gradient from a pass")
        return digest([p.grad for p in self.network.parameters() if p.grad is not None])


def unwatched_pass() -> Pass:
    """The same seeds, simply added to their sites: what their arithmetic costs anyhow."""
    bare = Pass()
    for site, features in SITES.items():
        module, shape = bare.network.get_submodule(site), torch.Size((BATCH, features))
        seed = BLUEPRINTS["lora"].build(module, shape, shape, {})
        bare.seeds.append(seed)
        module.register_forward_hook(lambda _, args, h, seed=seed: h + seed(args[0].detach(), h.detach()))
    return bare


def isolated_pass() -> Pass:
    """Seeds that have learned, so that what leaked of their loss would show in the gradients of the host."""
    bare = Pass()
    executor = Executor(bare.network, list(SITES), run_id="bench", settings=KasminaConfig())
    bare.turn()
    for site in SITES:
        module = grow(executor, site, TRAINING).module
        bare.seeds += [] if module is None else [learned(module)]
    return bare


PASSES = {"host alone": Pass, "seeds, nothing between": unwatched_pass, "two seeds training": isolated_pass}


def passed(name: str) -> Ready:
    one = PASSES[name]()
    return Ready(one.turn, answer=one.gradients)


class Watch:
    """A seed of 64 features beside a host of so many layers, two tensors each."""

    def __init__(self, num_layers: int) -> None:
        torch.manual_seed(0)
        host = nn.ModuleList([nn.Linear(4, 4) for _ in range(num_layers)])
        shape = torch.Size((BATCH, WATCHED_FEATURES))
        site = nn.Linear(WATCHED_FEATURES, WATCHED_FEATURES)
        self.seed = learned(BLUEPRINTS["mlp"].build(site, shape, shape, {}))
        self.x, self.h = torch.randn(shape), torch.randn(shape)
        self.tensors = HostTensors(host)
        self.monitor = GradientIsolationMonitor(self.seed, self.tensors)

    def ready(self, call: Callable[[], Any]) -> Ready:
        return Ready(call, answer=lambda: digest([call()]))

    def watched(self, *, closely: bool) -> Any:
        delta, violation = self.monitor.run(called, self.x, self.h, closely=closely)
        if violation:
            raise ValueError(f"the monitor found {violation}")
        return delta


def counters(num_layers: int) -> Ready:
    """The version counters read twice, and nothing else."""
    watch, version = Watch(num_layers), attrgetter("_version")
    return Ready(lambda: [list(map(version, watch.tensors.watched()[1])) for _ in range(2)])


def called_alone(num_layers: int) -> Ready:
    watch = Watch(num_layers)
    return watch.ready(lambda: called(watch.seed, watch.x, watch.h))


def watched(num_layers: int, closely: bool) -> Ready:
    watch = Watch(num_layers)
    return watch.ready(lambda: watch.watched(closely=closely))


def called(module: nn.Module, x: Tensor, h: Tensor) -> Any:
    return module(x, h)


def memory(effort: Effort) -> Iterator[Figure]:
    """Most that a forward and backward allocates at any moment, the host's gradients included: counted, not sampled."""
    for arm, make in PASSES.items():
        one = make()
        one.turn()
        one.network.zero_grad()  # what is freed meanwhile would count as room
        yield Figure("isolation-memory", arm, "new in a pass", peak_bytes(one.learn) / 1e6, "MB", 1)


def gradients_of_seeds() -> list[list[Tensor]]:
    """Of 64 MLP seeds, four tensors each."""
    torch.manual_seed(0)
    shapes = ((32, 64), (32,), (64, 32), (64,))
    return [[torch.randn(*shape) for shape in shapes] for _ in range(NUM_SEEDS)]


def normed_in_one() -> Ready:
    """One pass over the bytes of all: another number, and what no norms of all are faster than."""
    flat = torch.cat([each.flatten() for group in gradients_of_seeds() for each in group])
    return Ready(lambda: torch.linalg.vector_norm(flat))


def normed_singly() -> Ready:
    groups = gradients_of_seeds()

    def call() -> list[Tensor]:
        return [torch.stack(torch._foreach_norm(group)).norm() for group in groups]

    return Ready(call, answer=lambda: [float(each) for each in call()])


def normed_batched() -> Ready:
    groups = gradients_of_seeds()
    return Ready(lambda: batched_norms(groups), answer=lambda: batched_norms(groups).tolist())
