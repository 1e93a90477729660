"""A seed's kernel on its way into the model: from the pool into a slot, and by the whole command."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor, nn

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.work.hosts import Size
from esper.bench.work.seeds.grown import learned, put_into
from esper.bench.work.teachers.modes import batch_of
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.germination.germinate import Findings
from esper.kasmina.seeds.seed import Seed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING

NUM_SITES, WIDTH, BATCH, RANK = 16, 128, 128, 4
NUM_POOLED = 100
GERMINATE = pb.SeedOperation.SEED_OP_GERMINATE


class Sites:
    """Sites of a model, one after the other. `next` clears the newest, and moves on to the one after it."""

    def __init__(self, executor: Executor, model: nn.Module, inputs: Tensor, output: Callable[[], list[float]]) -> None:
        """`inputs`: of a site; `output`: of the model with what stands in it."""
        self.executor, self.model, self.inputs, self.output = executor, model, inputs, output
        self._sites = cycle(executor.sites)
        self.site = next(self._sites)

    def next(self) -> None:
        """Leave no seed behind at the site that was used."""
        self.executor._known.pop(self.site, None)
        self.executor._slots[self.site].settle(None)
        self.executor.kernels.pool.clear()
        self.site = next(self._sites)

    def carry_out(self, operation: pb.SeedOperation) -> None:
        """The whole command: agreement of the ranks, gate and record too. RuntimeError where it is refused."""
        command = pb.SeedCommand(seed_id=self.site, operation=operation, site=self.site, blueprint_id="lora")
        outcome = self.executor.apply(command, 0, 0)
        if outcome.status != pb.ReceiptStatus.RECEIPT_APPLIED:
            raise RuntimeError(f"operation {operation} at {self.site}: {outcome.detail}")

    def added(self) -> list[float]:
        """What the newest graft adds to the output of its site, learned and blended whole: before, it adds nothing, and
        a site without it would answer the same. RuntimeError where none is there."""
        seed, layer = self.executor._slots[self.site].seed, self.model.get_submodule(self.site)
        if seed is None or seed.module is None:
            raise RuntimeError(f"no seed stands at {self.site}")
        learned(seed.module)
        put_into(seed, BLENDING, alpha=1.0)
        with torch.no_grad():
            return list_of(layer(self.inputs) - layer.forward(self.inputs))


class Nursery(Sites):
    """A host with 16 sites, and an executor."""

    def __init__(self) -> None:
        host, inputs = Size(WIDTH, NUM_SITES, BATCH).model(), batch_of((WIDTH,), BATCH)
        sites = [str(at) for at in range(NUM_SITES)]
        executor = Executor(host, sites, run_id="bench", settings=KasminaConfig())
        super().__init__(executor, host, inputs, lambda: list_of(host(inputs)))
        host(inputs)  # every site is seen
        self.seeds = {site: self._germinated(site) for site in self.executor.sites}

    def prepare(self) -> None:
        """The next site's kernel into the pool; what leaves is freed before the clock starts."""
        self.next()
        self.executor.kernels.prepare(self.site, "lora", {})
        self.seeds[self.site].module = None

    def graft(self) -> Seed:
        """From the pool into its slot, where the next forward runs it."""
        kernels, seed = self.executor.kernels, self.seeds[self.site]
        kernel = kernels.load_kernel(kernels.next_id(self.site, "lora", {}))
        assert isinstance(kernel.findings, Findings)
        seed.module = kernel.module
        self.executor._slots[self.site].settle(seed, kernel.findings.prepared)
        return seed

    def germinate(self) -> None:
        self.carry_out(GERMINATE)

    def _germinated(self, site: str) -> Seed:
        command = pb.SeedCommand(seed_id=site, operation=GERMINATE, site=site, blueprint_id="lora")
        self.executor.apply(command, 0, 0)
        self.executor._slots[site].settle(None)
        return self.executor._known.pop(site)


def pop_and_assign() -> Ready:
    """What no graft does without: finding a module, and hanging it up. It answers with what such a module adds."""
    kernels = {str(at): matrices(WIDTH, WIDTH) for at in range(NUM_POOLED)}
    seed, pool, sites = nn.Module(), dict[str, nn.Module](), cycle(kernels)
    seed.module = nn.Identity()

    def stock() -> None:
        pool.update(kernels)

    def call() -> None:
        seed.module = pool.pop(next(sites))

    def answer() -> Answer:
        with torch.no_grad():
            return list_of(learned(seed.get_submodule("module"))(batch_of((WIDTH,), BATCH)))

    return Ready(call, answer, before=stock, calls=NUM_POOLED)


def pooled() -> Ready:
    nursery = Nursery()
    return Ready(nursery.graft, answer=nursery.added, before=nursery.prepare)


def pooled_with_optimizer() -> Ready:
    nursery = Nursery()

    def call() -> object:
        return torch.optim.AdamW([each for _, each in nursery.graft().trainable()])

    return Ready(call, answer=nursery.added, before=nursery.prepare)


def germinated(is_pooled: bool) -> Ready:
    """`is_pooled`: the kernel was made before."""
    nursery = Nursery()
    before: Callable[[], None] = nursery.prepare if is_pooled else nursery.next
    return Ready(nursery.germinate, answer=nursery.added, before=before)


def refused() -> Ready:
    """A command that finds nothing to do. RuntimeError where it is carried out."""
    nursery = Nursery()
    command = pb.SeedCommand(seed_id="nobody", operation=pb.SeedOperation.SEED_OP_CULL)
    if nursery.executor.apply(command, 0, 0).status == pb.ReceiptStatus.RECEIPT_APPLIED:
        raise RuntimeError("a seed that nobody has was culled")
    return Ready(lambda: nursery.executor.apply(command, 0, 0), before=nursery.prepare)


def matrices(num_in: int, num_out: int) -> nn.Sequential:
    """Those of a LoRA, bare."""
    return nn.Sequential(nn.Linear(num_in, RANK, bias=False), nn.Linear(RANK, num_out, bias=False))


def list_of(values: Tensor) -> list[float]:
    flat: list[float] = values.flatten().tolist()
    return flat
