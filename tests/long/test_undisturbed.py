"""Hosts whose layers, gradients or loops are of an unusual kind train as they would alone."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations

from esper.errors import SettingError
from esper.kasmina.slots.slot import Hook
from esper.leyline.lifecycle import SHADOWING, TRAINING
from esper.session import Session
from tests.net_kit import ROWS, Loss, Net, attached, backward, start, train
from tests.seed_kit import Op, equal
from tests.session_kit import on_seed, order
from tests.site_kit import squares

TOKENS = torch.arange(32).reshape(8, 4) * 7 % 20


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.site, self.head = nn.Embedding(20, 6, sparse=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.site(x).mean(1))
        return y


class Waves(Net):
    """Of which a part is complex."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6, dtype=torch.cfloat)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.site(self.body(x.to(torch.cfloat)).abs())))
        return y


def normed(of: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        host = Net()
        host.site = of(host.site)  # type: ignore[assignment]
        return host

    return made


def shaped_late() -> nn.Module:
    torch.manual_seed(1)
    host = nn.Sequential()
    for name, module in {"body": nn.Linear(6, 6), "site": nn.LazyLinear(6), "head": nn.Linear(6, 2)}.items():
        host.add_module(name, module)
    return host


def partly_scripted() -> nn.Module:
    host = Net()
    host.body = torch.jit.script(host.body)  # type: ignore[assignment]
    return host


def drawn_alike(host: nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(1)  # what is shaped by its first batch is drawn there
    return backward(host, x)


def first_batch_empty(host: nn.Module, x: Tensor) -> Tensor:
    torch.autograd.backward(host(x[:0]).sum())
    return backward(host, x)


def taken_apart(host: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in host.named_parameters()}


def give(host: nn.Module, gradients: dict[str, Tensor]) -> None:
    for name, parameter in host.named_parameters():
        parameter.grad = gradients[name].clone()


def by_func(host: nn.Module, x: Tensor) -> Tensor:
    loss = lambda weights: squares(functional_call(host, weights, (x,))).mean()  # noqa: E731
    give(host, grad(loss)(taken_apart(host)))
    return squares(host(x)).mean()


def per_sample(host: nn.Module, x: Tensor) -> Tensor:
    loss = lambda weights, row: squares(functional_call(host, weights, (row[None],))).mean()  # noqa: E731
    each = vmap(grad(loss), in_dims=(None, 0))(taken_apart(host), x)
    give(host, {name: gradients.mean(0) for name, gradients in each.items()})
    return squares(host(x)).mean()


def many_at_once(host: nn.Module, x: Tensor) -> Tensor:
    outputs, names = host(x), [name for name, _ in host.named_parameters()]
    aims = torch.eye(2)[:, None].expand(2, *outputs.shape)
    rows = torch.autograd.grad(outputs, list(host.parameters()), aims, is_grads_batched=True)
    give(host, {name: row.sum(0) for name, row in zip(names, rows, strict=True)})
    return squares(outputs).mean()


def with_tangents(host: nn.Module, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        output = forward_ad.unpack_dual(host(forward_ad.make_dual(x, torch.ones_like(x))))  # type: ignore[no-untyped-call]
        loss: Tensor = squares(output.primal).mean() + output.tangent.square().mean()
    torch.autograd.backward(loss)
    return loss


def with_a_penalty(host: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    outputs = host(x)
    (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
    loss = squares(outputs).mean() + slope.square().sum()
    torch.autograd.backward(loss)
    return loss


LEARNS: dict[str, tuple[Callable[[], nn.Module], Tensor, Loss]] = {
    "a spectral norm": (normed(parametrizations.spectral_norm), ROWS, backward),
    "a weight norm": (normed(parametrizations.weight_norm), ROWS, backward),
    "sparse gradients": (Words, TOKENS, backward),
    "complex weights": (Waves, ROWS, backward),
    "a layer that is shaped by its first batch": (shaped_late, ROWS, drawn_alike),
    "a script beside the site": (partly_scripted, ROWS, backward),
    "an empty batch": (Net, ROWS, first_batch_empty),
    "a gradient of the gradient": (Net, ROWS, with_a_penalty),
}
ONLY_LOOKS_ON: dict[str, tuple[Callable[[], nn.Module], Tensor, Loss]] = {
    "torch.func.grad": (Net, ROWS, by_func),
    "a gradient for each example": (Net, ROWS, per_sample),
    "many gradients at once": (Net, ROWS, many_at_once),
    "forward-mode differentiation": (Net, ROWS, with_tangents),
}


@pytest.mark.parametrize("kind", [*LEARNS, *ONLY_LOOKS_ON])
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's
def test_the_host_trains_to_the_same_bits_with_a_seed_in_training(kind: str) -> None:
    build, x, loss = {**LEARNS, **ONLY_LOOKS_ON}[kind]
    host, alone = build(), build()
    run = attached(host, x)

    start(run, host, x, loss)
    train(run, host, x, 6, loss)

    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    for _ in range(7):
        loss(alone, x)
        optimizer.step()
        optimizer.zero_grad()
    seed = run.executor.seeds["s0"]
    assert equal(host.state_dict(), alone.state_dict())
    assert (seed.stage, seed.fault, seed.violation) == (TRAINING, "", "")
    assert (seed.meter.fits.total == 6) == (kind in LEARNS)


def blended() -> tuple[Session, Net]:
    """A seed in SHADOWING, in a host that stands still."""
    host = Net()
    run = attached(host, ROWS, lr=0.0)
    start(run, host, ROWS)
    for operation in (None, Op.SEED_OP_START_GRAFTING, Op.SEED_OP_STABILIZE):
        if operation is not None:
            order(run, on_seed(operation))
        train(run, host, ROWS, 12)
    assert run.executor.seeds["s0"].stage == SHADOWING
    return run, host


@pytest.mark.parametrize("kind", ONLY_LOOKS_ON)
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_blended_seed_takes_part_as_a_constant_however_gradients_are_taken(kind: str) -> None:
    run, host = blended()
    seed, loss = run.executor.seeds["s0"].module, ONLY_LOOKS_ON[kind][2]
    assert seed is not None
    host.zero_grad()

    loss(host, ROWS)

    found = {name: each.grad.clone() for name, each in host.named_parameters() if each.grad is not None}
    run.close()
    host.zero_grad()
    host.site.register_forward_hook(lambda _, given, h: h + seed(given[0].detach(), h.detach()).detach())
    loss(host, ROWS)
    for name, parameter in host.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_a_host_goes_back_to_a_snapshot_though_a_layer_of_it_was_never_called() -> None:
    host = Net()
    host.spare = nn.LazyLinear(2)
    run = attached(host, ROWS)
    train(run, host, ROWS, 2)
    run.status.states.take(run.step_number)
    before = host.site.weight.detach().clone()
    train(run, host, ROWS, 2)

    [ref] = run.status.states.refs()
    run.status.states.restore(ref.step, run.step_number)

    assert torch.equal(host.site.weight, before)


@pytest.mark.parametrize("num_steps", [0, 4])
def test_a_host_that_is_saved_whole_while_it_is_steered_is_saved_without_us(num_steps: int) -> None:
    host = Net()
    run = attached(host, ROWS)
    if num_steps:
        start(run, host, ROWS)
        train(run, host, ROWS, num_steps)

    file = io.BytesIO()
    torch.save(host, file)
    copied = pickle.loads(pickle.dumps(host))

    assert all(hook.slot is None for hook in copied.site._forward_hooks.values() if isinstance(hook, Hook))
    assert torch.equal(copied(ROWS), host(ROWS)) and equal(copied.state_dict(), host.state_dict())
    train(run, host, ROWS, 2)
    assert len(file.getvalue()) > 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_site_that_is_a_script_is_refused_before_anything_is_started() -> None:
    script = torch.jit.script(nn.Linear(6, 6))
    host = nn.Sequential(nn.Linear(6, 6))
    host.add_module("site", script)

    with pytest.raises(SettingError, match=r"site.*expected a module of Python code"):
        attached(host, ROWS)


@pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_of_a_host_is_of_the_host_alone() -> None:
    run, host = blended()
    grown = host(ROWS)

    traced = torch.jit.trace(host, ROWS)  # type: ignore[no-untyped-call]

    assert torch.equal(host(ROWS), grown)
    run.close()
    torch.testing.assert_close(traced(ROWS), host(ROWS))
    assert not torch.allclose(grown, host(ROWS))
