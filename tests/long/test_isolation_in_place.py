"""Hosts that change tensors in place around a site train as if no seed were there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule
from esper.kasmina.executor import Executor
from esper.kasmina.seeds.seed import Moment
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDING
from tests.seed_kit import APPLIED, SETTINGS, Op, equal

torch.set_num_threads(1)

Around = Callable[[nn.Module, Tensor], Tensor]


class Site(nn.Module):
    """Needs its input for no gradient of its own."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Host(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor], around: Around) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.before, self.after = nn.Linear(5, 6), nn.Linear(6, 2)
        self.site, self.around = Site(function), around

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.after(self.around(self.site, self.before(x) * 1.0))
        return y


def add_to_input(site: nn.Module, y: Tensor) -> Tensor:
    return y.add_(site(y))


def add_to_output(site: nn.Module, y: Tensor) -> Tensor:
    z: Tensor = site(y)
    return z.add_(y)


def scale_both(site: nn.Module, y: Tensor) -> Tensor:
    z: Tensor = site(y)
    y.mul_(2.0)
    return z.mul_(0.5) + y


def double(x: Tensor) -> Tensor:
    return x * 2.0


def itself(x: Tensor) -> Tensor:
    return x


def as_view(x: Tensor) -> Tensor:
    return x.view(x.shape)


# Not among them: a site that gives its own input, both of which the host then writes to and reads through the other.
# A slot's value shares no memory with them.
CASES = [
    *((double, around) for around in (add_to_input, add_to_output, scale_both)),
    *((function, around) for function in (itself, as_view) for around in (add_to_input, add_to_output)),
]


def gradients(host: nn.Module, step: int) -> dict[str, Tensor]:
    host.zero_grad()
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(step))
    torch.autograd.backward(host(x).square().mean())
    return {name: p.grad.clone() for name, p in host.named_parameters() if p.grad is not None}


def see(host: nn.Module) -> None:
    gradients(host, 0)


def infer(host: nn.Module) -> None:
    with torch.inference_mode():
        host(torch.ones(7, 5))


def grown(host: nn.Module, blueprint: str, met: Callable[[nn.Module], None] = see) -> Executor:
    beside = Executor(host, ["site"], run_id="r", settings=SETTINGS)
    met(host)
    for operation in (Op.SEED_OP_GERMINATE, Op.SEED_OP_START_TRAINING):
        command = pb.SeedCommand(seed_id="s0", operation=operation, site="site", blueprint_id=blueprint)
        outcome = beside.apply(command, 1, 0)
        assert outcome.status == APPLIED, outcome
    module = beside.seeds["s0"].module
    assert module is not None
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05)
    return beside


@pytest.mark.parametrize("blueprint", ["mlp", "lora", "norm"])
@pytest.mark.parametrize(("function", "around"), CASES)
def test_backward_goes_through_and_the_host_is_alone(
    function: Callable[[Tensor], Tensor], around: Around, blueprint: str
) -> None:
    host = Host(function, around)
    alone = [gradients(host, step) for step in (1, 2)]

    beside = grown(host, blueprint)
    found = []
    for step in (1, 2):
        beside.begin_step(step, 0)
        found.append(gradients(host, step))

    seed = beside.seeds["s0"]
    assert all(equal(a, b) for a, b in zip(found, alone, strict=True))
    assert seed.gradients() and all(g.isfinite().all() for g in seed.gradients()) and seed.violations == 0


@pytest.mark.parametrize(("function", "around"), CASES)
def test_backward_goes_through_while_the_seed_blends(function: Callable[[Tensor], Tensor], around: Around) -> None:
    host = Host(function, around)
    beside = grown(host, "mlp")
    seed = beside.seeds["s0"]
    seed.record(BLENDING, Moment(1, 0))
    seed.schedule = AlphaSchedule(target=0.5)

    beside.begin_step(1, 0)
    found = gradients(host, 1)

    assert all(g.isfinite().all() for g in found.values()) and len(found) == 4
    assert seed.gradients() and seed.violations == 0


def test_backward_goes_through_where_inference_alone_has_met_the_site() -> None:
    host = Host(double, add_to_input)
    alone = [gradients(host, step) for step in (1, 2)]

    beside = grown(host, "mlp", infer)
    found = []
    for step in (1, 2):
        beside.begin_step(step, 0)
        found.append(gradients(host, step))

    assert all(equal(a, b) for a, b in zip(found, alone, strict=True))


@pytest.mark.parametrize("met", [see, infer])
def test_a_site_whose_input_stays_hands_it_on_uncopied(met: Callable[[nn.Module], None]) -> None:
    seen: list[int] = []
    host = Host(double, lambda site, y: site(y))
    beside = grown(host, "mlp", met)
    gradients(host, 1)
    host.site.register_forward_pre_hook(lambda _, args: seen.append(args[0].data_ptr()))
    module = beside.seeds["s0"].module
    assert module is not None
    module.register_forward_pre_hook(lambda _, args: seen.append(args[0].data_ptr()))

    beside.begin_step(2, 0)
    gradients(host, 2)

    assert len(seen) == 2 and seen[0] == seen[1]


def test_what_a_seed_writes_to_in_inference_mode_is_not_the_hosts() -> None:
    host = Host(double, lambda site, y: site(y) + y)
    with torch.inference_mode():
        alone = host(torch.ones(7, 5))
    beside = grown(host, "mlp")
    seed = beside.seeds["s0"]
    seed.record(BLENDING, Moment(1, 0))  # alpha is 0
    beside.begin_step(1, 0)
    gradients(host, 1)  # with this its close look is over
    assert seed.module is not None
    seed.module.register_forward_pre_hook(lambda _, given: [each.mul_(2.0) for each in given] and None)

    with torch.inference_mode():
        found = host(torch.ones(7, 5))

    assert torch.equal(found, alone)


def test_a_host_in_channels_last_gives_the_seed_contiguous_tensors_and_keeps_its_own_format() -> None:
    host = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    host.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    beside = Executor(host, ["0"], run_id="r", settings=SETTINGS)
    bare = host(images)
    for operation in (Op.SEED_OP_GERMINATE, Op.SEED_OP_START_TRAINING):
        command = pb.SeedCommand(seed_id="s0", operation=operation, site="0", blueprint_id="lora")
        assert beside.apply(command, 1, 0).status == APPLIED
    module = beside.seeds["s0"].module
    assert module is not None
    given: list[Tensor] = []
    module.register_forward_pre_hook(lambda _, args: given.extend(args))

    value = host(images)
    torch.autograd.backward(value.square().mean())

    assert [tensor.is_contiguous() for tensor in given] == [True, True]
    assert torch.equal(value, bare) and value.stride() == bare.stride()
    assert beside.seeds["s0"].gradients()
