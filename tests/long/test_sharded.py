"""What FSDP or ZeRO has split, or some ranks share, is refused; the sites of such a model can be listed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from esper.errors import SettingError
from esper.kasmina.survey import as_inputs, survey
from esper.kernels.installed import installed_blueprints
from tests.long.test_sites_detach import attached
from tests.seed_kit import batch, new_host


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone: parameters are split over one rank."""
    monkeypatch.delenv("ESPER_RUN", raising=False)
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(part: str) -> nn.Module:
    host, mesh = new_host(), init_device_mesh("cpu", (1,))
    for name in part.split():
        fully_shard(host.get_submodule(name), mesh=mesh)
    return host


def weights(host: nn.Module) -> list[torch.Tensor]:
    """Gathered, and copied."""
    return [each.full_tensor().clone() for each in host.parameters() if isinstance(each, DTensor)]


def test_a_sharded_model_is_refused_and_trains_on_untouched() -> None:
    host = sharded("head")
    before = weights(host)
    inputs, targets = batch(1)

    with pytest.raises(SettingError, match=r"head\.weight: a DTensor .* on 1 ranks'; expected parameters that") as met:
        attached(host, "body")

    assert "fully_shard" in str(met.value) and "\n" not in str(met.value)
    assert not any(module._forward_hooks for name, module in host.named_modules() if name != "head")
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    torch.autograd.backward(nn.functional.cross_entropy(host(inputs), targets))
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(host), strict=True))


def test_the_sites_of_a_sharded_model_are_those_of_the_bare_one() -> None:
    blueprints, inputs = installed_blueprints(), as_inputs(batch(1)[0])

    seen = survey(sharded("body head"), inputs, blueprints)

    bare = [replace(view, kind=view.kind.removeprefix("FSDP")) for view in seen]
    assert bare == survey(new_host(), inputs, blueprints) != seen


def test_an_optimizer_of_which_each_rank_steps_a_share_is_refused_and_left_as_it_was() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.jit, which torch still calls there
        from torch.distributed.optim import ZeroRedundancyOptimizer
    host = new_host()
    optimizer = ZeroRedundancyOptimizer(host.parameters(), torch.optim.AdamW, lr=0.01)

    with pytest.raises(SettingError, match=r"^optimizer is 'ZeroRedundancyOptimizer'; expected an optimizer whose"):
        attached(host, "body", optimizer=optimizer)

    assert not optimizer._optimizer_step_post_hooks


def test_a_model_that_some_ranks_share_alone_is_refused_before_it_trains() -> None:
    """Two of them in one world would be steered as one, and their seeds' gradients averaged."""
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    host = new_host()
    model = DistributedDataParallel(host, process_group=dist.new_group([0, 1]))

    with pytest.raises(SettingError, match=r"DistributedDataParallel among 2 of 4 ranks'; expected one that all ranks"):
        attached(model)

    assert not any(each._forward_hooks for each in host.modules())
