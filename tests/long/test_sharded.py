"""What fully_shard has split grows as a whole model does; what else is split, or some ranks share, is refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from esper.errors import SettingError
from esper.kasmina.slots.survey import as_inputs, survey
from esper.kernels.installed import installed_blueprints
from esper.session import Session
from esper.tolaria.state.bank import Bank
from tests.seed_kit import batch, equal, new_host
from tests.session_kit import backward, train, train_bare
from tests.site_kit import attached, fossilize, start


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone: parameters are split over one rank."""
    monkeypatch.delenv("ESPER_RUN", raising=False)
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(*parts: str) -> nn.Module:
    """The whole host, or what is named of it, by itself."""
    host, mesh = new_host(), init_device_mesh("cpu", (1,))
    for name in parts or ("",):
        fully_shard(host.get_submodule(name), mesh=mesh)
    return host


def weights(host: nn.Module) -> dict[str, torch.Tensor]:
    """Gathered, and copied."""
    return {name: each.full_tensor().clone() for name, each in host.named_parameters() if isinstance(each, DTensor)}


def moments(run: Session) -> list[torch.Tensor]:
    return [each.clone() for each in run.optimizers.snapshot(Bank()).tensors()]


def test_until_a_seed_blends_it_trains_as_without() -> None:
    host, bare = sharded(), sharded()
    run = attached(host, "body", optimizer=torch.optim.AdamW(host.parameters(), lr=0.01))
    train(run, host, 1)
    start(run, host, "body", "mlp", "s0")

    train_bare(bare, torch.optim.AdamW(bare.parameters(), lr=0.01), run.step_number - 1)

    assert equal(weights(host), weights(bare)) and len(weights(host)) == 4
    assert run.executor.seeds["s0"].module is not None
    assert all(type(each) is nn.Parameter for each in run.executor.seeds["s0"].module.parameters())


def lived(host: nn.Module, blueprint: str) -> Session:
    """With a seed that became a part of it."""
    run = attached(host, "body", optimizer=torch.optim.AdamW(host.parameters(), lr=0.01))
    train(run, host, 1)
    start(run, host, "body", blueprint, "s0")
    fossilize(run, host, "s0")
    return run


@pytest.mark.parametrize("parts", [(), ("body",)], ids=["in what is split", "split itself"])
def test_a_lora_is_merged_into_the_split_weight(parts: tuple[str, ...]) -> None:
    host, other = sharded(*parts), new_host()
    lived(host, "lora").close()
    lived(other, "lora").close()

    assert host.state_dict().keys() == other.state_dict().keys()
    for name, weight in weights(host).items():
        torch.testing.assert_close(weight, other.get_parameter(name).detach(), rtol=1e-4, atol=1e-5)


def test_a_fossil_of_its_own_parameters_stays_as_its_seed_left_it() -> None:
    host = sharded()
    run = lived(host, "mlp")
    [left] = [copy.deepcopy(each) for name, each in host.named_modules() if name.endswith("seed_s0_1")]

    for number in range(1, 4):
        with run.step():
            backward(host, number)
            nn.utils.clip_grad_norm_(host.parameters(), 0.1)
            run.optimizer.step()
            run.optimizer.zero_grad()

    [now] = [each for name, each in host.named_modules() if name.endswith("seed_s0_1")]
    assert equal(now.state_dict(), left.state_dict()) and len(left.state_dict()) > 3
    assert not any(each.requires_grad for each in now.parameters())
    run.close()


@pytest.mark.parametrize("directly", [True, False], ids=["in place", "through its data"])
def test_a_seed_that_writes_to_a_gathered_weight_is_caught(directly: bool) -> None:
    host, bare = sharded(), sharded()
    run = attached(host, "body", optimizer=torch.optim.AdamW(host.parameters(), lr=0.01))
    train(run, host, 1)
    start(run, host, "body", "mlp", "s0")
    seed = run.executor.seeds["s0"]
    assert seed.module is not None and not seed.violations

    def write(module: nn.Module, given: tuple[torch.Tensor, ...], delta: torch.Tensor) -> None:
        weight = host.get_parameter("body.weight").detach() if directly else host.get_parameter("body.weight").data
        weight.mul_(1.0)

    with seed.module.register_forward_hook(write):
        train(run, host, run.executor.settings.walk_every)

    train_bare(bare, torch.optim.AdamW(bare.parameters(), lr=0.01), run.step_number - 1)
    assert seed.violations and "body.weight" in seed.violation
    assert equal(weights(host), weights(bare))


@pytest.mark.parametrize("blueprint", ["mlp", "lora"])
def test_a_seed_keeps_its_precision_where_what_is_gathered_is_narrow(blueprint: str) -> None:
    host, policy = new_host(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    fully_shard(host, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    bare = new_host()
    fully_shard(bare, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    run = attached(host, "body", optimizer=torch.optim.AdamW(host.parameters(), lr=0.01))
    train(run, host, 1)
    start(run, host, "body", blueprint, "s0")
    train_bare(bare, torch.optim.AdamW(bare.parameters(), lr=0.01), run.step_number - 1)
    assert equal(weights(host), weights(bare)) and not run.executor.requests()
    module = run.executor.seeds["s0"].module
    assert module is not None and {each.dtype for each in module.parameters()} == {torch.float32}

    fossilize(run, host, "s0")

    train(run, host, 1)
    run.close()
    assert host(batch(1)[0]).dtype == torch.bfloat16


def test_a_rollback_brings_back_its_split_weights_and_moments() -> None:
    host = sharded()
    run = attached(host, "body", optimizer=torch.optim.AdamW(host.parameters(), lr=0.01))
    train(run, host, 1)
    start(run, host, "body", "mlp", "s0")
    states, at = run.status.states, run.step_number
    states.take(at)
    then, held = weights(host), moments(run)
    train(run, host, 4)
    assert not equal(weights(host), then)
    with torch.no_grad():
        host(batch(1)[0])  # what is gathered for a forward alone stays gathered behind it

    states.restore(at, run.step_number)

    assert equal(weights(host), then) and [*map(torch.equal, moments(run), held)] == [True] * len(held)
    train(run, host, 4)
    assert not equal(weights(host), then)


def test_what_another_mesh_or_tensor_parallelism_has_split_is_refused_and_trains_on() -> None:
    host, mesh = new_host(), init_device_mesh("cpu", (1,))
    parallelize_module(host, mesh, {"head": ColwiseParallel()})
    with pytest.raises(SettingError, match=r"head\.weight: a DTensor .* on 1 ranks'; expected parameters that") as met:
        attached(host, "body")
    assert "\n" not in str(met.value) and not any(module._forward_hooks for module in host.body.modules())

    dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    host = new_host()
    fully_shard(host, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))["a"])
    with pytest.raises(SettingError, match=r"a DTensor .* on 2 ranks'; expected"):
        attached(host, "body")


@pytest.mark.parametrize("late", ["", "head"], ids=["all of it", "what was left whole"])
def test_what_is_split_after_attach_is_refused_before_the_first_step(late: str) -> None:
    host = sharded("body") if late else new_host()
    run = attached(host, "body")
    fully_shard(host.get_submodule(late), mesh=init_device_mesh("cpu", (1,)))
    first = f"{late or 'body'}.bias"

    with pytest.raises(
        SettingError, match=rf"^model is '{first}: split after attach\(\)'; expected a model that is split"
    ):
        train(run, host, 1)

    assert run.step_number == 1
    run.close()


def test_the_sites_of_a_sharded_model_are_those_of_the_bare_one() -> None:
    blueprints, inputs = installed_blueprints(), as_inputs(batch(1)[0])

    seen = survey(sharded("body", "head"), inputs, blueprints)

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
