"""Several seeds at one site, one after the other; and 64 seeds in 16 sites, each in its own stage."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING, PROBATIONARY, SHADOWING, TRAINING
from tests.seed_kit import APPLIED, SETTINGS, Bench, Op, Reason, batch, equal, new_host

STAGES = (TRAINING, BLENDING, SHADOWING, PROBATIONARY)


def put(executor: Executor, site: str, stage: pb.SeedLifecycleStage, alpha: float = 0.5) -> None:
    """A seed in its stage, with a delta that is not zero; the gates are no part of this."""
    command = pb.SeedCommand(seed_id=site, operation=Op.SEED_OP_GERMINATE, site=site, blueprint_id="lora")
    assert executor.apply(command, 1, 0).status == APPLIED
    seed = executor.seeds[site]
    seed.record(stage, Moment(1, 0))
    seed.schedule = AlphaSchedule(alpha, alpha)
    seed.set_alpha(1)
    assert seed.module is not None
    generator = torch.Generator().manual_seed(len(executor.seeds))
    for _, parameter in seed.trainable():
        parameter.data.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def delta(executor: Executor, site: str, x: Tensor, h: Tensor) -> Tensor:
    module = executor.seeds[site].module
    assert module is not None
    value: Tensor = module(x, h)
    return value


def two_at(site: str, *stages: pb.SeedLifecycleStage) -> Bench:
    bench = Bench(settings=replace(SETTINGS, seeds_per_site=2))
    bench.train(1)
    for place, stage in zip((site, f"{site}#2"), stages, strict=True):
        put(bench.executor, place, stage)
    return bench


def test_a_site_has_as_many_places_as_the_settings_say() -> None:
    bench = two_at("body", TRAINING, BLENDING)

    assert bench.executor.sites == ["body", "body#2", "head", "head#2"]
    assert bench.germinate("body#2", seed_id="s9").reason == Reason.REASON_SITE_TAKEN
    assert bench.germinate("body#3", seed_id="s9").reason == Reason.REASON_UNKNOWN_SITE


def test_seeds_of_a_site_add_up_in_order() -> None:
    bench = two_at("body", BLENDING, SHADOWING)
    x, _ = batch(99)

    outputs = bench.host(x)

    h = bench.host.body.forward(x)
    h = h + 0.5 * delta(bench.executor, "body", x, h)
    h = h + 0.5 * delta(bench.executor, "body#2", x, h)
    torch.testing.assert_close(outputs, bench.host.head.forward(torch.relu(h)))


def test_two_training_seeds_leave_the_host_bit_identical() -> None:
    bench = two_at("body", TRAINING, TRAINING)
    alone = new_host()
    alone.load_state_dict(bench.host.state_dict())

    gradients = bench.gradients(99)

    assert equal(gradients, Bench(alone, sites=()).gradients(99))
    for site in ("body", "body#2"):
        assert any(g.any() for g in bench.executor.seeds[site].gradients())


def test_each_learns_its_own_gradient_with_the_other_held() -> None:
    bench = two_at("body", BLENDING, BLENDING)
    x, targets = batch(99)
    own = [p for _, p in bench.executor.seeds["body"].trainable()]
    h = bench.host.body.forward(x).detach()
    h = h + 0.5 * delta(bench.executor, "body", x, h)
    value = h + 0.5 * delta(bench.executor, "body#2", x, h.detach())
    loss = nn.functional.cross_entropy(bench.host.head.forward(torch.relu(value)), targets)
    expected = torch.autograd.grad(loss, own)

    bench.gradients(99)

    for parameter, gradient in zip(own, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("first", ["body", "body#2"])
def test_a_fossil_stays_where_its_seed_was(first: str) -> None:
    bench = two_at("body", PROBATIONARY, PROBATIONARY)
    bench.executor._moves.collector.config = replace(bench.settings, min_gain=-1e6, seeds_per_site=2)
    x, _ = batch(99)
    before = bench.host(x)

    outcome = bench.do(Op.SEED_OP_FOSSILIZE, first)

    assert outcome.status == APPLIED, outcome
    assert bool(outcome.fossilized) == (first == "body#2")  # the first one folds, a later one must wait its turn
    torch.testing.assert_close(bench.host(x), before, rtol=1e-5, atol=1e-6)


def test_a_reset_beside_a_live_seed_keeps_the_order() -> None:
    bench = two_at("body", BLENDING, BLENDING)
    bench.do(Op.SEED_OP_CULL, "body")
    bench.epoch = SETTINGS.embargo_epochs
    hooks = [hook.slot.name for hook in bench.host.body._forward_hooks.values()]  # type: ignore[attr-defined]

    outcome = bench.do(Op.SEED_OP_RESET, "body")

    assert outcome.status == APPLIED, outcome
    after = [hook.slot.name for hook in bench.host.body._forward_hooks.values()]  # type: ignore[attr-defined]
    assert after == hooks == ["body", "body#2"]


def test_sixty_four_seeds_train_side_by_side_in_sixteen_sites() -> None:
    torch.manual_seed(0)
    host = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(16)), nn.Linear(8, 3))
    sites = [str(at) for at in range(16)]
    executor = Executor(host, sites, run_id="r", settings=KasminaConfig(seeds_per_site=4))
    host(batch(0)[0])
    for at, site in enumerate(executor.sites):
        put(executor, site, STAGES[at % 4], alpha=0.01)
    optimizers = [torch.optim.AdamW(p for _, p in seed.trainable()) for seed in executor.seeds.values()]

    for step in range(1, 4):
        executor.begin_step(step, 0)
        x, targets = batch(step)
        torch.autograd.backward(nn.functional.cross_entropy(host(x), targets))
        executor.observe([p.grad for p in host.parameters() if p.grad is not None], step)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        host.zero_grad()

    states = executor.states()
    assert [state.stage for state in states] == [*STAGES] * 16
    assert [state.seed_id for state in states if not state.gradient_norm > 0] == []
    assert executor.requests() == []
