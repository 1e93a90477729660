"""What each stage does to the forward value and to both gradients, against float64 autograd of the plain formula."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.seeds.seed import Moment, Seed
from esper.leyline.lifecycle import BLENDING, PROBATIONARY, SHADOWING
from tests.seed_kit import APPLIED, SETTINGS, Bench, Host, Op, batch, equal, loss_of, new_host

Join = Callable[[Tensor, Tensor], Tensor]  # of a site's input and output
Grads = dict[str, Tensor]

SITES = ("body", "head")
BLUEPRINTS = ("lora", "mlp")
ALPHA = {"BLENDING": 0.3, "SHADOWING": 1.0, "PROBATIONARY": 1.0}
STAGES = {"BLENDING": BLENDING, "SHADOWING": SHADOWING, "PROBATIONARY": PROBATIONARY}


def raised(stage: str, site: str, blueprint: str) -> tuple[Bench, Seed]:
    """A seed far from zero that was put into this stage past its gates; in float64."""
    bench = Bench()
    bench.train(1)
    assert bench.germinate(site, blueprint).status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)
    seed = bench.executor.seeds["s0"]
    assert seed.module is not None
    bench.host.double()
    seed.module.double()
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in seed.module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    if stage != "TRAINING":
        seed.record(STAGES[stage], Moment(bench.step, 0))
        seed.schedule = AlphaSchedule(target=ALPHA[stage])
        seed.set_alpha(bench.step)
    return bench, seed


def forward(host: Host, site: str, join: Join, x: Tensor) -> Tensor:
    """The host's own forward with `join` at the site, written out."""
    h = host.body(x)
    a = torch.relu(join(x, h) if site == "body" else h)
    y: Tensor = host.head(a)
    return join(a, y) if site == "head" else y


def gradients(module: nn.Module) -> Grads:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def double_batch() -> tuple[Tensor, Tensor]:
    x, targets = batch(99)
    return x.double(), targets


def run(bench: Bench) -> tuple[Tensor, Grads, Grads]:
    """(output, the host's gradients, the seed's) through the slots."""
    bench.host.zero_grad()
    x, targets = double_batch()
    seed = bench.executor.seeds["s0"]
    if seed.module is not None:
        seed.module.zero_grad()
    y = bench.host(x)
    torch.autograd.backward(loss_of(y, targets).mean())
    return y.detach(), gradients(bench.host), {} if seed.module is None else gradients(seed.module)


def written_out(host: Host, module: nn.Module, site: str, join: Join) -> tuple[Tensor, Grads, Grads]:
    """The same by autograd alone, on copies that no slot is in."""
    host.zero_grad()
    module.zero_grad()
    x, targets = double_batch()
    y = forward(host, site, join, x)
    torch.autograd.backward(loss_of(y, targets).mean())
    return y.detach(), gradients(host), gradients(module)


def copies(bench: Bench, seed: Seed) -> tuple[Host, nn.Module]:
    assert seed.module is not None
    return copy.deepcopy(bench.host), copy.deepcopy(seed.module)


def close(found: Grads, expected: Grads, rtol: float) -> None:
    assert found.keys() == expected.keys() and found
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=rtol, atol=1e-14)


@pytest.mark.parametrize("stage", ["GERMINATED", "EMBARGOED"])
@pytest.mark.parametrize("site", SITES)
def test_a_seed_that_does_not_take_part_yet_or_no_more_leaves_every_bit(stage: str, site: str) -> None:
    bench = Bench()
    bench.raise_seed("GERMINATED" if stage == "GERMINATED" else "TRAINING", site)
    if stage == "EMBARGOED":
        bench.do(Op.SEED_OP_CULL)
    bare = new_host()
    bare.load_state_dict(bench.host.state_dict())
    x, _ = batch(99)

    found = bench.gradients(99)

    assert bench.stage() == stage
    assert torch.equal(bench.host(x), bare(x))
    assert equal(found, Bench(bare, sites=()).gradients(99))


@pytest.mark.parametrize("blueprint", BLUEPRINTS)
@pytest.mark.parametrize("site", SITES)
def test_training_fits_the_step_against_the_gradient_and_the_host_is_alone(site: str, blueprint: str) -> None:
    bench, seed = raised("TRAINING", site, blueprint)
    host, module = copies(bench, seed)
    kept: list[Tensor] = []

    def hold(x: Tensor, h: Tensor) -> Tensor:
        h.retain_grad()
        kept[:] = [x.detach(), h]
        return h * 1.0

    value, host_gradients, _ = written_out(host, module, site, hold)
    x, h, g = kept[0], kept[1].detach(), kept[1].grad
    assert g is not None
    # It descends 1/2 * norm(delta + mu * g)^2 / mu, with the gradient g = dL/dh and mu = rho * norm(h) / norm(g).
    mu = SETTINGS.rho * h.norm() / g.norm()
    delta = module(x, h)
    torch.autograd.backward((delta + mu * g).square().sum() / (2 * mu))
    found = run(bench)

    assert torch.equal(found[0], value) and equal(found[1], host_gradients)
    close(found[2], gradients(module), rtol=1e-6)  # norms are taken in float32
    assert delta.norm() > 1e-3 * h.norm()  # it had something to say


@pytest.mark.parametrize("blueprint", BLUEPRINTS)
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("stage", ["BLENDING", "SHADOWING", "PROBATIONARY"])
def test_blended_stages_give_the_host_its_whole_gradient_and_the_seed_its_own(
    stage: str, site: str, blueprint: str
) -> None:
    bench, seed = raised(stage, site, blueprint)
    host, module = copies(bench, seed)
    alpha = float(seed.alpha)
    deltas: list[Tensor] = []

    def blend(x: Tensor, h: Tensor) -> Tensor:
        deltas.append(module(x.detach(), h.detach()))
        return h + alpha * deltas[0]

    value, host_gradients, seed_gradients = written_out(host, module, site, blend)
    found = run(bench)

    assert float(deltas[0].detach().norm()) > 0.0
    torch.testing.assert_close(found[0], value, rtol=1e-6, atol=1e-9)  # alpha is held in float32
    close(found[1], host_gradients, rtol=1e-6)
    close(found[2], seed_gradients, rtol=1e-6)


@pytest.mark.parametrize("blueprint", BLUEPRINTS)
@pytest.mark.parametrize("site", SITES)
def test_a_fossil_is_one_graph_with_its_host(site: str, blueprint: str) -> None:
    bench, seed = raised("PROBATIONARY", site, blueprint)
    host, module = copies(bench, seed)
    value, host_gradients, seed_gradients = written_out(host, module, site, lambda x, h: h + module(x, h))
    slot = bench.executor._slots[site]
    bench.executor._fossils.join(slot, seed)
    slot.settle(None)
    seed.module = None

    found = run(bench)

    torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-14)
    joined = {name.rpartition("seed_s0_1.")[2]: g for name, g in found[1].items() if "seed_s0_1." in name}
    close({name: g for name, g in found[1].items() if "seed_s0_1." not in name}, host_gradients, rtol=1e-11)
    if blueprint == "mlp":
        close(joined, seed_gradients, rtol=1e-11)
    else:
        assert not joined  # folded into the site's weight


@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING", "PROBATIONARY"])
def test_a_paused_seed_is_an_identity_that_keeps_the_hosts_gradients(stage: str) -> None:
    bench, seed = raised(stage, "body", "mlp")
    host, module = copies(bench, seed)
    value, host_gradients, _ = written_out(host, module, "body", lambda x, h: h)

    bench.executor.pause("s0", paused=True)
    found = run(bench)

    assert torch.equal(found[0], value) and equal(found[1], host_gradients)
    assert found[2] == {}
