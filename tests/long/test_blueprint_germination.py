"""A blueprint meets a site: refused where it does not fit, at home where it does, from the pool or built anew."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from esper.errors import RefusedError
from esper.kasmina.executor import Executor
from esper.kasmina.germination.weighing import weighed
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.kernels.contract import KernelExecutionContract, KernelLoading
from esper.leyline import contracts as pb
from tests.blueprint_kit import CASES, HOSTS, germinate
from tests.rank_kit import Ranks
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, Reason, batch, equal


def gradients(host: nn.Module, x: Tensor) -> dict[str, Tensor]:
    host.zero_grad()
    torch.autograd.backward(host(x).square().mean())
    return {name: p.grad.clone() for name, p in host.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("kind", "blueprint"), CASES)
def test_each_blueprint_learns_beside_a_host_that_does_not_notice(
    kind: type[nn.Module], blueprint: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    host, x = kind().to(dtype), torch.randn(HOSTS[kind]).to(dtype)
    alone, expected = gradients(host, x), host(x)
    executor = Executor(host, ["body"], run_id="test-00000000")
    host(x)

    germinate(executor, blueprint)
    found = gradients(host, x)

    assert torch.equal(host(x), expected)
    assert equal(found, alone)
    assert any(bool(gradient.any()) for gradient in executor.seeds["s0"].gradients())


def test_a_misfit_is_refused_with_both_shapes_and_changes_nothing() -> None:
    bench, alone = Bench(), Bench(sites=())
    bench.train(1)

    outcome = bench.germinate(blueprint="se")
    bench.train(2)
    alone.train(3)

    assert (outcome.status, outcome.reason) == (FAILED, Reason.REASON_NOT_SUPPORTED)
    assert outcome.detail == (
        "blueprint se does not fit a Linear (input [64, 8], output [64, 6]): the output has 2 dimensions; "
        "expected [batch, channels, places], 3 to 5 of them; site 'body'"
    )
    assert not bench.executor.reports()
    assert equal(bench.host.state_dict(), alone.host.state_dict())
    assert bench.germinate(blueprint="lora").status == APPLIED


def test_a_misfit_on_one_rank_is_refused_by_all() -> None:
    even = replace(BLUEPRINTS["lora"], misfit=lambda m, x, h, given: "" if h[0] % 2 == 0 else "odd batch")
    first, second = (Bench(blueprints={"lora": even}) for _ in range(2))
    said: list[Tensor] = []

    def first_of_two(tensor: Tensor) -> Tensor:
        said.append(tensor)
        return tensor

    def second_of_two(tensor: Tensor) -> Tensor:
        return (tensor + said.pop(0)) / 2

    first.executor.kernels.collector.reduce, second.executor.kernels.collector.reduce = first_of_two, second_of_two
    first.host(batch(1, 63)[0])
    second.host(batch(1, 64)[0])

    outcomes = [bench.germinate(blueprint="lora") for bench in (first, second)]

    assert [outcome.reason for outcome in outcomes] == [Reason.REASON_NOT_SUPPORTED] * 2
    assert outcomes[0].detail.endswith("odd batch; site 'body'")
    assert outcomes[1].detail == "blueprint lora does not fit the site on another rank"
    assert said == []


class PerExample(nn.Module):
    """A weight for each of so many examples."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num, 1))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.weight * h


@pytest.mark.parametrize(("sizes", "status"), [((64, 64), APPLIED), ((64, 63), FAILED)])
def test_a_seed_that_would_be_of_another_size_on_another_rank_is_refused_by_all(
    sizes: tuple[int, int], status: int
) -> None:
    sized = Blueprint("sized", (), lambda module, x, h, given: PerExample(h[0]), "sized")
    ranks, benches = Ranks(), [Bench(blueprints={"sized": sized}) for _ in sizes]
    for rank, (bench, size) in enumerate(zip(benches, sizes, strict=True)):
        bench.executor.kernels.collector.reduce = ranks.agree(rank)
        bench.host(batch(1, size)[0])

    outcomes = ranks.all([partial(bench.germinate, blueprint="sized") for bench in benches])

    assert [outcome.status for outcome in outcomes] == [status] * 2
    assert all("digest_gap" in outcome.detail for outcome in outcomes if status == FAILED)


def test_a_seed_larger_than_the_budget_is_refused_before_it_is_built() -> None:
    bench, sizes = Bench(settings=replace(SETTINGS, seed_memory_bytes=1000)), list[int]()
    built = BLUEPRINTS["mlp"].builder

    def counted(*given: Any) -> nn.Module:
        seed = built(*given)
        sizes.extend(p.numel() for p in seed.parameters() if p.device.type != "meta")
        return seed

    bench.executor.kernels.blueprints = {"mlp": replace(BLUEPRINTS["mlp"], builder=counted)}
    bench.train(1)

    refused, fits = bench.germinate(hidden=17), bench.germinate(hidden=16)

    assert (refused.status, refused.reason) == (FAILED, Reason.REASON_NOT_SUPPORTED)
    # 17 * (8 + 1) + 6 * (17 + 1) floats
    assert "its parameters would take 1,044 bytes; seed_memory_bytes is 1,000; site 'body'" in refused.detail
    assert fits.status == APPLIED
    assert sum(sizes) == 16 * 9 + 6 * 17


def test_what_was_weighed_at_a_site_is_not_built_on_the_meta_device_again() -> None:
    bench, devices = Bench(), list[str]()
    built = BLUEPRINTS["mlp"].builder

    def watched(*given: Any) -> nn.Module:
        seed = built(*given)
        devices.extend({p.device.type for p in seed.parameters()})
        return seed

    bench.executor.kernels.blueprints = {"mlp": replace(BLUEPRINTS["mlp"], builder=watched)}
    bench.train(1)

    for hidden in (16, 16, 17):
        assert bench.germinate(hidden=hidden).status == APPLIED
        assert bench.do(Op.SEED_OP_CANCEL).status == APPLIED
        bench.executor._known.clear()

    assert devices == ["meta", "cpu", "cpu", "meta", "cpu"]


@pytest.mark.parametrize(("kind", "blueprint"), CASES)
def test_what_a_blueprint_would_take_is_what_it_takes(kind: type[nn.Module], blueprint: str) -> None:
    x = torch.randn(HOSTS[kind])
    site = kind().get_submodule("body")
    build = partial(BLUEPRINTS[blueprint].build, site, x.shape, site(x).shape, {})

    size = weighed(build, torch.float64)

    assert size == 8 * sum(p.numel() for p in build().parameters()) > 0


def test_a_size_that_a_builder_works_out_on_the_cpu_is_weighed() -> None:
    def build() -> nn.Module:
        return nn.Linear(2, int(torch.empty(1, device="cpu").fill_(3.0)))

    assert weighed(build, torch.float32) == 4 * (3 * 2 + 3)


def test_a_noop_germinates_and_is_culled_and_has_nothing_to_train() -> None:
    bench, alone = Bench(), Bench(sites=())
    bench.train(1)
    germinated = bench.germinate(blueprint="noop")

    refused = bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(2)
    alone.train(3)
    culled = bench.do(Op.SEED_OP_CULL)

    assert (germinated.status, culled.culled) == (APPLIED, True)
    assert (refused.status, refused.reason) == (FAILED, Reason.REASON_NOT_SUPPORTED)
    assert refused.detail == "seed 's0' of blueprint noop has no parameters to train; cull it"
    assert equal(bench.host.state_dict(), alone.host.state_dict())


def test_a_kernel_from_the_pool_has_the_bits_of_one_built_on_the_spot() -> None:
    pooled, built = Bench(), Bench()
    for bench in (pooled, built):
        bench.train(1)
    built.train(1)  # neither the step nor the seed's name is part of it
    pooled.executor.kernels.prepare("body", "mlp", {"hidden": 16})

    outcome = pooled.germinate(hidden=16)
    built.germinate(seed_id="other", hidden=16)

    modules = [pooled.executor.seeds["s0"].module, built.executor.seeds["other"].module]
    pool = pooled.executor.kernels.pool
    assert outcome.status == APPLIED
    assert (pool.stats.hits, len(pool), pool.num_bytes) == (1, 0, 0)
    assert modules[0] is not None
    assert modules[1] is not None
    assert equal(modules[0].state_dict(), modules[1].state_dict())


def test_a_kernel_for_another_dtype_is_not_grafted() -> None:
    bench = Bench()
    bench.train(1)
    bench.executor.kernels.prepare("body", "mlp", {})
    bench.host.double()

    outcome = bench.germinate(blueprint="mlp")

    assert outcome.status == APPLIED
    assert {p.dtype for _, p in bench.executor.seeds["s0"].trainable()} == {torch.float64}
    assert len(bench.executor.kernels.pool) == 0


@pytest.mark.parametrize(
    ("site", "blueprint", "said"),
    [
        ("body", "se", r"output \[64, 6\]\): the output has 2 dimensions"),
        ("body", "lroa", r"'lroa' \(near: 'lora'\)"),
        ("tail", "lora", "no site is called 'tail'"),
    ],
)
def test_what_cannot_germinate_cannot_be_prepared(site: str, blueprint: str, said: str) -> None:
    bench = Bench()
    bench.train(1)

    with pytest.raises(RefusedError, match=said):
        bench.executor.kernels.prepare(site, blueprint, {})


def test_a_site_that_has_carried_nothing_takes_no_kernel() -> None:
    with pytest.raises(RefusedError, match="carried no batch"):
        Bench().executor.kernels.prepare("body", "lora", {})


def test_a_site_that_grew_another_seed_meanwhile_gets_a_kernel_of_its_own() -> None:
    bench = Bench()
    bench.train(1)
    bench.executor.kernels.prepare("body", "mlp", {})
    bench.germinate(blueprint="lora")
    bench.do(Op.SEED_OP_CULL)
    bench.epoch = 2
    bench.do(Op.SEED_OP_RESET)

    assert bench.germinate(blueprint="mlp").status == APPLIED
    assert bench.executor.kernels.pool.stats.hits == 0


def test_a_seed_does_not_fold_beneath_another_hook_on_the_output() -> None:
    bench = Bench()
    bench.host.head.register_forward_hook(lambda module, args, output: output.clone())
    bench.train(20)
    bench.raise_seed("PROBATIONARY", "head", "lora")
    bench.train(60)
    x, _ = batch(99)
    slot = bench.executor._slots["head"]
    slot.forced = 1.0
    before = bench.host(x).detach()
    slot.forced = None

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert (outcome.status, len(outcome.fossilized)) == (APPLIED, 2)
    torch.testing.assert_close(bench.host(x), before, rtol=1e-4, atol=1e-5)


def test_the_executors_kernels_keep_the_seeds_contract() -> None:
    bench = Bench()
    bench.train(1)
    kernels: KernelLoading = bench.executor.kernels
    kernel_id = bench.executor.kernels.next_id("body", "lora", {"rank": 2})

    kernel = kernels.load_kernel(kernel_id)
    kernels.cache_kernel(kernel_id, kernel)
    x, h = torch.randn(5, 8), torch.randn(5, 6)

    assert isinstance(kernels, KernelLoading)
    assert not isinstance(kernels, KernelExecutionContract)  # teachers, messages and figures are others' affair
    assert torch.equal(kernels.execute_kernel(kernel, x, h), torch.zeros(5, 6))
    assert kernel.get_memory_size() == 4 * (2 * 8 + 6 * 2)
    assert kernels.evict_kernel(kernel_id)
    assert not kernels.evict_kernel(kernel_id)


class Unshaped(nn.Module):
    """A seed's module whose layer has no shape before its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(8)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        y: Tensor = self.layer(h)
        return y


def test_a_blueprint_of_a_lazy_layer_fails_its_gate_and_training_goes_on() -> None:
    lazy = Blueprint("lazy", (), lambda *_: Unshaped(), "lazy")
    bench = Bench(blueprints={**BLUEPRINTS, "lazy": lazy})
    bench.train(1)
    command = pb.SeedCommand(seed_id="s0", operation=Op.SEED_OP_GERMINATE, site="body", blueprint_id="lazy")

    outcome = bench.executor.apply(command, 2, 0)

    assert outcome.status == FAILED
    assert outcome.reason == Reason.REASON_GATE_FAILED
    assert "layer.weight is of a lazy layer" in outcome.detail
