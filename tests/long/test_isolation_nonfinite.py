"""What is not finite, or out of all proportion, reaches neither the host's forward nor its gradients."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.seeds.seed import Moment
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline.lifecycle import BLENDING, SHADOWING
from tests.seed_kit import APPLIED, Bench, Host, Op, batch, loss_of

INF, NAN = float("inf"), float("nan")
POISONS = [INF, -INF, NAN, 1e38, -1e38]
ALPHA = 0.25


class Poisoner(nn.Module):
    """own * h, plus `poison` at the first feature of the samples in `marked`; nothing at all while it is a newborn."""

    marked: Tensor
    poison: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(()))
        self.register_buffer("marked", torch.zeros(64, 1))
        self.register_buffer("poison", torch.zeros(()))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        first = torch.nn.functional.one_hot(torch.zeros((), dtype=torch.long), h.shape[-1])
        where = (self.marked * first).bool()[: len(h)] if len(h) <= 64 else torch.zeros_like(h, dtype=torch.bool)
        return torch.where(where, self.poison, self.own * h)


def poisoned(stage: str, poison: float, marked: slice) -> tuple[Bench, Poisoner]:
    """A seed past its gates in this stage; the host never stepped."""
    odd = Blueprint("odd", (), lambda *_: Poisoner(), "")
    bench = Bench(blueprints={**BLUEPRINTS, "odd": odd}, host_lr=0.0)
    bench.train(1)
    assert bench.germinate(blueprint="odd").status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)
    seed = bench.executor.seeds["s0"]
    assert isinstance(seed.module, Poisoner)
    if stage != "TRAINING":
        seed.record(BLENDING if stage == "BLENDING" else SHADOWING, Moment(bench.step, 0))
        seed.schedule = AlphaSchedule(target=ALPHA)
        seed.set_alpha(bench.step)
    with torch.no_grad():
        seed.module.own.fill_(0.5)
        seed.module.marked[marked] = 1.0
        seed.module.poison.fill_(poison)
    return bench, seed.module


def run(host: nn.Module, context: AbstractContextManager[object]) -> tuple[Tensor, dict[str, Tensor]]:
    host.zero_grad()
    x, targets = batch(99)
    with context:
        y = host(x.to(next(host.parameters()).dtype))
        loss = loss_of(y.float(), targets).mean()
    torch.autograd.backward(loss)
    return y.detach(), {name: p.grad.clone() for name, p in host.named_parameters() if p.grad is not None}


def same(found: tuple[Tensor, dict[str, Tensor]], expected: tuple[Tensor, dict[str, Tensor]]) -> bool:
    """Bit for bit, and finite."""
    pairs = [(found[0], expected[0]), *((found[1][name], g) for name, g in expected[1].items())]
    return found[1].keys() == expected[1].keys() and all(torch.equal(a, b) and a.isfinite().all() for a, b in pairs)


def bare(bench: Bench) -> Host:
    host = copy.deepcopy(bench.host)  # its slots are inert
    host.load_state_dict(bench.host.state_dict())
    return host


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING", "SHADOWING"])
def test_a_seed_that_poisons_every_sample_leaves_every_bit_of_the_host(stage: str, poison: float) -> None:
    bench, _ = poisoned(stage, poison, slice(None))

    assert same(run(bench.host, nullcontext()), run(bare(bench), nullcontext()))


@pytest.mark.parametrize("poison", POISONS)
def test_samples_are_judged_one_by_one(poison: float) -> None:
    bench, _ = poisoned("BLENDING", poison, slice(0, 64, 3))
    host, sound = bare(bench), torch.ones(64, 1, dtype=torch.bool)
    sound[0:64:3] = False
    host.body.register_forward_hook(lambda _, args, h: torch.where(sound, h + ALPHA * (0.5 * h.detach()), h))

    found, expected = run(bench.host, nullcontext()), run(host, nullcontext())

    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert torch.equal(found[0][0], run(bare(bench), nullcontext())[0][0])


@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
def test_denormal_outputs_pass_and_harm_nobody(stage: str) -> None:
    bench, _ = poisoned(stage, 1e-40, slice(None))

    output, gradients = run(bench.host, nullcontext())
    seed = bench.executor.seeds["s0"]

    assert output.isfinite().all() and all(g.isfinite().all() for g in gradients.values())
    assert all(g.isfinite().all() for g in seed.gradients()) and seed.gradients()
    assert float(seed.meter.strikes) == 0.0


# torch's own tracer does what these two warn of, with autograd functions and behind a graph break.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
def test_denormal_outputs_harm_nobody_under_autocast_and_in_compiled_code(
    stage: str, dtype: torch.dtype, compiled: bool
) -> None:
    bench, _ = poisoned(stage, 1e-40, slice(None))
    host: nn.Module = torch.compile(bench.host, backend="aot_eager") if compiled else bench.host  # type: ignore[assignment]
    plain, gradients = run(bare(bench), torch.autocast("cpu", dtype))

    output, found = run(host, torch.autocast("cpu", dtype))
    seed = bench.executor.seeds["s0"]

    assert all(value.isfinite().all() for value in (output, *found.values(), *seed.gradients())) and seed.gradients()
    assert float(seed.meter.strikes) == 0.0
    if stage == "TRAINING":
        torch.testing.assert_close(output, plain)
        torch.testing.assert_close({name.removeprefix("_orig_mod."): g for name, g in found.items()}, gradients)


@pytest.mark.parametrize("poison", [INF, NAN, 1e38, 7e4])  # 7e4: infinite once cast to float16
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
def test_under_autocast_too(stage: str, dtype: torch.dtype, poison: float) -> None:
    bench, _ = poisoned(stage, poison, slice(None))

    found, expected = (run(host, torch.autocast("cpu", dtype)) for host in (bench.host, bare(bench)))

    assert same(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_in_hosts_of_other_precision_too(dtype: torch.dtype) -> None:
    bench, module = poisoned("BLENDING", INF, slice(None))
    bench.host.to(dtype)
    module.to(dtype)

    assert same(run(bench.host, nullcontext()), run(bare(bench), nullcontext()))


# torch's own tracer does what these two warn of, with autograd functions and behind a graph break.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
def test_in_compiled_code_too(stage: str) -> None:
    bench, module = poisoned(stage, INF, slice(None))
    compiled: nn.Module = torch.compile(bench.host, backend="aot_eager")  # type: ignore[assignment]
    expected = run(bare(bench), nullcontext())

    for poison in POISONS:
        module.poison.fill_(poison)
        found = run(compiled, nullcontext())
        torch.testing.assert_close(found[0], expected[0])  # other kernels than in eager mode
        torch.testing.assert_close({name.removeprefix("_orig_mod."): g for name, g in found[1].items()}, expected[1])


def test_a_host_that_is_not_finite_itself_is_left_as_it_is() -> None:
    bench, _ = poisoned("BLENDING", 0.0, slice(0, 0))
    with torch.no_grad():
        bench.host.body.bias[0] = INF

    found, expected = run(bench.host, nullcontext())[0], run(bare(bench), nullcontext())[0]

    torch.testing.assert_close(found, expected, equal_nan=True)
    assert float(bench.executor.seeds["s0"].meter.num_non_finite) == 0.0
