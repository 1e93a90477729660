"""What 64 seeds in different stages show in the state tensor, and what it costs to keep and to read it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment, Seed
from esper.kasmina.seeds.state_tensor import Column
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, EMBARGOED, GERMINATED, PROBATIONARY, SHADOWING, TRAINING
from tests.asked_of_torch import Operations
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, batch, new_host

STAGES = (GERMINATED, TRAINING, BLENDING, SHADOWING, PROBATIONARY, EMBARGOED)
CONFIG = KasminaConfig(seeds_per_site=4, window=3, min_gain=0.25, embargo_epochs=9)
EPOCH = 7
BACK = [
    *(Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__),
    *(Tensor.cpu, Tensor.numpy, Tensor.nonzero, torch.nonzero, torch.equal),
]


class Elsewhere(Tensor):
    """Stands for what is on a device: nothing takes it for a plain tensor of the CPU, which is read for nothing."""


class Many:
    """64 seeds in 16 sites. Seed number `at` is in stage `at % 6` since epoch `at % 5`, blended by `at / 100`."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.host = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(16)), nn.Linear(8, 3))
        self.executor = Executor(self.host, [str(at) for at in range(16)], run_id="r", settings=CONFIG)
        self.host(batch(0)[0])
        for at, site in enumerate(self.executor.sites):
            self._put(at, site)
        self.optimizers = [torch.optim.SGD((p for _, p in seed.trainable()), lr=0.01) for seed in self.learning()]

    def _put(self, at: int, site: str) -> None:
        epoch, stage, germinate = at % 5, STAGES[at % 6], Op.SEED_OP_GERMINATE
        command = pb.SeedCommand(seed_id=site, operation=germinate, site=site, blueprint_id="lora")
        assert self.executor.apply(command, 1, epoch).status == APPLIED
        if stage == EMBARGOED:
            self.executor.apply(pb.SeedCommand(seed_id=site, operation=Op.SEED_OP_CULL), 1, epoch)
        elif stage != GERMINATED:
            seed = self.executor.seeds[site]
            seed.record(stage, Moment(1, epoch))
            seed.schedule = AlphaSchedule(at / 100, at / 100)
            seed.set_alpha(1)

    def learning(self) -> list[Seed]:
        return list(self.executor.learning().values())

    def train(self, step: int, *, elsewhere: bool = False) -> None:
        self.executor.begin_step(step, EPOCH)
        x, targets = batch(step)
        x = x.as_subclass(Elsewhere) if elsewhere else x
        loss = nn.functional.cross_entropy(self.host(x), targets)
        torch.autograd.backward(loss)
        self.executor.note_loss(loss)
        gradients = [p.grad for p in self.host.parameters() if p.grad is not None]
        self.executor.observe([g.as_subclass(Elsewhere) for g in gradients] if elsewhere else gradients, step)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.host.zero_grad()

    def row(self, at: int) -> dict[str, int]:
        (states,) = self.executor.state_tensors()
        seed = self.executor.seeds[self.executor.sites[at]]
        return {column.name: value for column, value in states.read()[seed.meter.row].items()}


class Waits(TorchFunctionMode):
    """Counts what makes the process wait for a device, as Python calls it; on a CPU some of it is no operation."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in BACK:
            self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


ONE_BY_ONE = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
"""Values leave a device so."""


def waited(call: Callable[[], object]) -> tuple[list[str], list[str]]:
    """In Python, and below."""
    with Waits() as waits, Operations() as asked:
        call()
    return waits.calls, [str(each) for each in asked.calls if each in ONE_BY_ONE]


def test_64_seeds_show_their_ten_columns() -> None:
    many = Many()
    for step in (1, 2):
        many.train(step)
    blueprint = int(BLUEPRINTS["lora"].digest, 16) >> (256 - 31)

    for at in range(64):
        stage = STAGES[at % 6]
        assert many.row(at) == {
            "LIFECYCLE_STAGE": int(stage),
            "BLUEPRINT_ID": blueprint,
            "EPOCHS_IN_STATE": EPOCH - at % 5,
            "LAST_GATE": int(pb.SeedLifecycleGate.SEED_GATE_G0_SANITY),
            "ALPHA_BLEND": 10 * at if stage in (BLENDING, SHADOWING, PROBATIONARY) else 0,
            "PERFORMANCE_GATE": 250,
            "EMBARGO_COUNTER": max(at % 5 + 9 - EPOCH, 0) if stage == EMBARGOED else 0,
            "READY_FLAG": int(stage == GERMINATED or (stage == EMBARGOED and at % 5 + 9 <= EPOCH)),
            "REGION_ID": at,
            "GATE_SCORE": 1000,
        }


def test_heartbeats_show_what_the_tensor_holds() -> None:
    many = Many()
    many.train(1)

    states = many.executor.states()

    assert [state.stage for state in states] == [STAGES[at % 6] for at in range(64)]
    assert [state.metrics["epochs_in_stage"] for state in states] == [EPOCH - at % 5 for at in range(64)]
    assert [state.metrics["ready"] for state in states] == [float(at % 6 == 0) for at in range(64)]


def test_a_step_waits_for_no_device_and_a_heartbeat_once() -> None:
    many = Many()
    for step in (1, 2):
        many.train(step)
    assert CONFIG.read_every > 4

    steps = [waited(lambda step=step: many.train(step, elsewhere=True)) for step in (3, 4)]  # type: ignore[misc]
    beat = waited(many.executor.states)
    flush = waited(lambda: many.executor.begin_step(CONFIG.read_every, EPOCH))
    many.executor._collector.reduce = lambda tensor: tensor
    among_ranks = waited(lambda: many.executor.begin_step(2 * CONFIG.read_every, EPOCH))

    assert [calls for step in steps for calls in step] == [[], [], [], []]
    assert beat == flush == (["tolist"], [])  # the seeds' rows
    assert among_ranks == (["tolist"] * 2, [])  # those, and the means over ranks that move alpha


def test_ready_seeds_are_those_whose_next_gate_may_be_tried() -> None:
    many = Many()
    for step in range(1, 2 * CONFIG.window + 2):
        many.train(step)
    many.executor.pause(many.executor.sites[0], True)
    seeds = many.executor.seeds

    (states,) = many.executor.state_tensors()

    rows = {seed.meter.row: seed for seed in seeds.values()}
    ready = [rows[row].seed_id for row in states.get_ready_seeds().tolist()]
    embargo_over = [at for at in range(64) if at % 6 == 5 and at % 5 + 9 <= EPOCH]
    expected = [at for at in range(1, 64) if at % 6 < 5 or at in embargo_over]
    assert sorted(ready) == sorted(many.executor.sites[at] for at in expected)


def test_a_seed_that_gave_way_leaves_its_row_empty() -> None:
    bench = Bench()
    bench.train(1)
    bench.germinate()
    row = bench.executor.seeds["s0"].meter.row
    bench.do(Op.SEED_OP_CULL)
    bench.epoch = SETTINGS.embargo_epochs
    (states,) = bench.executor.state_tensors()
    assert states.read()[row][Column.LIFECYCLE_STAGE] == EMBARGOED

    assert bench.do(Op.SEED_OP_RESET).status == APPLIED
    bench.germinate("head")
    gc.collect()

    now = bench.executor.seeds["s0"].meter.row
    (states,) = bench.executor.state_tensors()
    assert [at for at, columns in enumerate(states.read()) if any(columns.values())] == [now] != [row]


def test_a_gate_that_was_failed_shows_how_much_of_it_held() -> None:
    bench = Bench(holdout=None)
    bench.train(1)
    bench.germinate()
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(2)

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert outcome.status == FAILED
    (states,) = bench.executor.state_tensors()
    read = states.read()[bench.executor.seeds["s0"].meter.row]
    # Of seven criteria one holds, that of no violations: a window is 10 steps.
    assert (read[Column.GATE_SCORE], read[Column.LAST_GATE]) == (143, pb.SeedLifecycleGate.SEED_GATE_G0_SANITY)


@pytest.mark.parametrize("written_by", ["this version", "an older one"])
def test_a_seed_comes_back_from_a_checkpoint_as_old_as_it_was(written_by: str) -> None:
    bench = Bench()
    bench.train(1)
    bench.epoch = 2
    bench.germinate()
    bench.epoch = 5
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(1)
    dumped = bench.executor.durable().dump()
    if written_by == "an older one":
        for name in ("stage_since_epoch", "gate_score"):
            del dumped["seeds"]["s0"][name]

    resumed = Bench(new_host(), step=bench.step, epoch=8)
    durable = resumed.executor.durable()
    durable.make(dumped).put_back(bench.step)
    resumed.train(1)

    (states,) = resumed.executor.state_tensors()
    read = states.read()[resumed.executor.seeds["s0"].meter.row]
    assert read[Column.LIFECYCLE_STAGE] == TRAINING
    expected = {"this version": (3, 1000), "an older one": (6, 0)}[written_by]  # older: since it germinated
    assert (read[Column.EPOCHS_IN_STATE], read[Column.GATE_SCORE]) == expected
