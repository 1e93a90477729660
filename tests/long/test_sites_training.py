"""Ways of training that run a site's forward otherwise: checkpointing, autocast, DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from esper.kasmina.gates.ablation import Holdout
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from tests import checkpoint_kit
from tests.seed_kit import Op, batch, equal, loss_of, new_host
from tests.site_kit import Plot, alone


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.site, self.out = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(torch.tanh(self.site(self.norm(x)))) + x
        return y


class Host(nn.Module):
    """Two blocks, checkpointed or not."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.reentrant is None or not self.training:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def plot(reentrant: bool | None, site: str = "blocks.1.site", blueprints: Mapping[str, Blueprint] = BLUEPRINTS) -> Plot:
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), requires_grad=True)
    return Plot(Host(reentrant), inputs, (site,), blueprints=blueprints)


def grown(one: Plot, stage: str) -> Plot:
    one.train()
    one.start(one.sites[0])
    one.train(12)
    if stage != "TRAINING":
        one.do(Op.SEED_OP_START_GRAFTING)
        one.train(12)
    return one


def measured(one: Plot) -> list[float | Tensor]:
    """What the gates see of the seed."""
    meter = one.executor.seeds["s0"].meter
    counts = [meter.fits.total, meter.sizes.total, meter.ratios.total, meter.num_mismatches]
    rings = [meter.fits.window(), meter.sizes.window(), meter.ratios.window()]
    sums = [meter.first_fits, meter.strikes, meter.num_non_finite, meter.num_batches, meter.num_shadowed, meter.drift]
    return [*counts, *(ring for ring in rings if ring is not None), *sums]


@pytest.mark.parametrize("site", ["blocks.1.site", "blocks.1.out", "blocks.1"])
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_neither_the_training_nor_what_is_measured(
    reentrant: bool, stage: str, site: str
) -> None:
    one, other = grown(plot(None, site), stage), grown(plot(reentrant, site), stage)

    assert equal(other.gradients, one.gradients)
    seeds = [dict(each.executor.seeds["s0"].trainable()) for each in (one, other)]
    assert equal(*[{name: p.detach() for name, p in seed.items()} for seed in seeds])
    for here, there in zip(measured(one), measured(other), strict=True):
        torch.testing.assert_close(torch.as_tensor(here), torch.as_tensor(there), rtol=0, atol=0)


class Fickle(nn.Module):
    """Works until it raises for good, half-way through."""

    raises = False

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        inner = torch.tanh(self.first(x))
        if self.raises:
            raise ValueError("out of luck")
        y: Tensor = self.second(inner)
        return y


def fickle(module: nn.Module, i: torch.Size, o: torch.Size, parameters: Mapping[str, float]) -> nn.Module:
    return Fickle()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("site", ["blocks.1.site", "blocks.1"])
def test_a_seed_that_raises_where_a_forward_is_run_again_does_not_stop_the_host(site: str, reentrant: bool) -> None:
    one = plot(reentrant, site, {"odd": Blueprint("odd", (), fickle, "fickle")})
    one.train()
    one.start(site, "odd")
    one.train(3)
    seed = one.executor.seeds["s0"]
    assert isinstance(seed.module, Fickle)
    seed.module.raises = True

    one.train(3)

    assert "out of luck" in seed.fault
    assert [request.seed_id for request in one.executor.requests()] == ["s0"]
    assert equal(one.gradients, alone(one, Host(None), 7).gradients)


@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_seed_grows_under_autocast(dtype: torch.dtype, stage: str) -> None:
    def call(host: nn.Module, inputs: Tensor) -> Any:
        with torch.autocast("cpu", dtype):
            return host(inputs)

    one = plot(None)
    one.call = call

    grown(one, stage)

    meter = one.executor.seeds["s0"].meter
    assert meter.sizes.total == one.step - 1 and float(meter.strikes) == 0
    assert equal(one.gradients, alone(one, Host(None), one.step).gradients) == (stage == "TRAINING")
    assert one.host.state_dict()["blocks.1.site.weight"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_seed_lives_in_a_model_that_is_half_precision_itself(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow(step: int, size: int = 64) -> tuple[Tensor, Tensor]:
        x, classes = batch(step, size)
        return x.to(dtype), classes

    monkeypatch.setattr(checkpoint_kit, "batch", narrow)
    examples = Holdout([narrow(-100 - i, 128) for i in range(4)], loss_of)
    monkeypatch.setattr(checkpoint_kit, "held_out", lambda: examples)
    run = checkpoint_kit.Training(tmp_path, new_host().to(dtype))

    run.raise_seed()  # with the optimizer that a command without values makes

    assert run.stages() == {"s0": "FOSSILIZED"}
    assert all(bool(each.isfinite().all()) for each in run.everything().values())


@pytest.mark.usefixtures("process_group")
def test_a_seed_grows_below_distributed_data_parallel() -> None:
    one = plot(None)
    host, model = Host(None), DistributedDataParallel(Host(None))
    wrapped = Plot(model, one.inputs, ("module.blocks.1.site",))

    grown(one, "BLENDING")
    wrapped.train()
    wrapped.start("blocks.1.site")
    wrapped.blend()
    wrapped.do(Op.SEED_OP_CULL)

    assert {name.removeprefix("module.") for name in wrapped.gradients} == one.gradients.keys()
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(wrapped.gradients[f"module.{name}"], gradient)
    host.load_state_dict(model.module.state_dict())
