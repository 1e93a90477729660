"""The monitor finds what a seed reads and writes beyond its own, in the call in which it happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from esper.kasmina.isolation.graph import batched_norms, walk
from esper.kasmina.isolation.monitor import WATCHED, GradientIsolationMonitor, HostTensors, IsolationError

torch.set_num_threads(1)

Deed = Callable[[nn.Linear, Tensor, Tensor], object]


class Seed(nn.Module):
    """Does `deed` on the host, the input and the output, and then what a seed does."""

    def __init__(self, host: nn.Linear, deed: Deed = lambda host, x, h: None) -> None:
        super().__init__()
        self.own = nn.Linear(4, 3)
        self.hold, self.deed = [host], deed

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        self.deed(self.hold[0], x, h)
        delta: Tensor = self.own(x)
        return delta


def call(module: nn.Module, x: Tensor, h: Tensor) -> Tensor | IsolationError:
    """As a slot does: what the seed raises stays here."""
    try:
        delta: Tensor = module(x, h)
    except IsolationError as error:
        return error
    return delta


def look(deed: Deed, *, closely: bool) -> tuple[str, nn.Linear]:
    host = nn.Linear(4, 3)
    x = torch.ones(2, 4)
    monitor = GradientIsolationMonitor(Seed(host, deed), HostTensors(host))
    return monitor.run(call, x, host(x).detach(), closely=closely)[1], host


def add_to_weight(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    with torch.no_grad():
        host.weight.add_(1.0)


def add_to_data(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    host.weight.data[0].mul_(2.0)


def write_as_out(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    torch.add(torch.ones(3), 1.0, out=host.bias.data)


def add_to_all(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    torch._foreach_add_([torch.zeros(2), host.bias.data], 1.0)


def change_input(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    x.relu_()


def change_output(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    h.view(-1)[0] = 0.0


def swallow(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    try:
        host.weight.data.zero_()
    except IsolationError:
        return


def write_own(host: nn.Linear, x: Tensor, h: Tensor) -> None:
    (x * 2).relu_().add_(1.0)
    torch.zeros(3).copy_(h[0].detach())


@pytest.mark.parametrize("closely", [False, True])
def test_a_seed_that_keeps_to_itself_violates_nothing(closely: bool) -> None:
    assert look(write_own, closely=closely)[0] == ""


@pytest.mark.parametrize(
    ("deed", "names"), [(add_to_weight, "weight"), (change_input, "its input"), (change_output, "the site's output")]
)
def test_a_write_is_found_in_the_call_and_the_hosts_backward_still_runs(deed: Deed, names: str) -> None:
    host = nn.Linear(4, 3)
    below = nn.Parameter(torch.ones(2, 4))
    x = below * 1.0
    h = host(x).tanh()  # backward needs the weight, x and h as they were
    monitor = GradientIsolationMonitor(Seed(host, deed), HostTensors(host))

    _, violation = monitor.run(call, x.detach(), h.detach(), closely=False)

    assert violation == f"the seed wrote to {names} in place"
    torch.autograd.backward(h.sum())
    assert below.grad is not None and below.grad.isfinite().all()


@pytest.mark.parametrize("deed", [add_to_weight, add_to_data, write_as_out, add_to_all, swallow])
def test_a_close_look_stops_a_write_before_it_happens(deed: Deed) -> None:
    torch.manual_seed(0)
    untouched = nn.Linear(4, 3).state_dict()
    torch.manual_seed(0)

    violation, host = look(deed, closely=True)

    assert "would write to" in violation
    assert all(torch.equal(tensor, untouched[name]) for name, tensor in host.state_dict().items())


def test_a_graph_that_reaches_the_host_is_found() -> None:
    host = nn.Linear(4, 3)
    x = torch.ones(2, 4)

    class Reaching(Seed):
        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            return super().forward(x, h) * self.hold[0].weight.sum()

    _, violation = GradientIsolationMonitor(Reaching(host), HostTensors(host)).run(call, x, host(x), closely=False)

    assert violation == "delta's graph reaches 1 leaves that are not the seed's own"


def test_a_seed_does_not_own_what_it_took_from_the_host() -> None:
    host = nn.Linear(4, 3)
    seed = Seed(host)
    seed.own = host
    x = torch.ones(2, 4)

    _, violation = GradientIsolationMonitor(seed, HostTensors(host)).run(call, x, x, closely=False)

    assert "reaches 2 leaves" in violation


def test_of_a_large_host_every_tensor_is_watched_in_turn() -> None:
    host = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(2 * WATCHED + 5)])
    last = host[-1].detach()  # shares memory and version counter
    seed = Seed(nn.Linear(4, 3), lambda *_: last.add_(1.0))
    x = torch.ones(2, 4)
    monitor = GradientIsolationMonitor(seed, HostTensors(host))

    found = [monitor.run(call, x, x, closely=False)[1] for _ in range(6)]

    name = f"the seed wrote to {2 * WATCHED + 4} in place"
    assert found == ["", "", name, "", "", name]


def test_under_inference_mode_the_hosts_parameters_are_still_watched() -> None:
    host = nn.Linear(4, 3)
    monitor = GradientIsolationMonitor(Seed(host, add_to_weight), HostTensors(host))

    with torch.inference_mode():
        x = torch.ones(2, 4)
        _, violation = monitor.run(call, x, host(x), closely=False)

    assert violation == "the seed wrote to weight in place"


def test_a_close_look_at_a_compiled_seed_leaves_it_compiled() -> None:
    frames = 0

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        nonlocal frames
        frames += 1
        return graph.forward

    host = nn.Linear(4, 3)
    x = torch.ones(2, 4)
    h = host(x).detach()
    module: nn.Module = torch.compile(Seed(host).own, backend=backend)  # type: ignore[assignment]
    monitor = GradientIsolationMonitor(module, HostTensors(host))

    found = [monitor.run(lambda m, x, h: m(x), x, h, closely=closely)[1] for closely in (True, False, True, False)]

    assert (found, frames) == (["", "", "", ""], 1)


def test_the_walk_counts_leaves_that_are_not_the_seeds_own() -> None:
    own, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    strays = [walk(delta, {id(own)}).num_stray for delta in ((own * 2).relu(), (own * other).relu() + other, other)]

    assert strays == [0, 1, 1]
    assert walk(torch.ones(2), set()).num_stray == 0


def test_batched_norms_are_those_of_each_group_alone() -> None:
    groups = [[torch.randn(3, 2), torch.randn(5)], [], [torch.full((4,), 6e4).half()]]

    norms = batched_norms(groups)

    expected = [sum(float(t.double().square().sum()) for t in group) ** 0.5 for group in groups]
    torch.testing.assert_close(norms.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


def test_hosts_with_tensors_of_other_kinds_are_watched() -> None:
    host = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3), nn.Embedding(5, 2, device="meta"))
    host.register_buffer("sparse", torch.eye(3).to_sparse())
    host.register_buffer("wrapped", TwoTensor(torch.ones(3), torch.ones(3)))  # type: ignore[no-untyped-call]
    host.register_buffer("given", torch.inference_mode()(torch.ones)(2))
    linear = host[1]
    assert isinstance(linear, nn.Linear)
    x = torch.ones(2, 4)

    found = [
        GradientIsolationMonitor(Seed(linear, deed), HostTensors(host)).run(
            call, x, linear(x).detach(), closely=closely
        )[1]
        for deed, closely in ((write_own, False), (write_own, True), (add_to_weight, False), (add_to_data, True))
    ]

    assert found[:3] == ["", "", "the seed wrote to 1.weight in place"]
    assert "would write to 1.weight" in found[3]


def test_a_write_inside_a_tensor_that_wraps_others_is_stopped() -> None:
    host = nn.Linear(4, 3)
    inner = torch.ones(3)
    host.register_buffer("wrapped", TwoTensor(torch.ones(3), inner))  # type: ignore[no-untyped-call]

    monitor = GradientIsolationMonitor(Seed(host, lambda *_: inner.data.zero_()), HostTensors(host))
    _, violation = monitor.run(call, torch.ones(2, 4), torch.ones(2, 3), closely=True)

    assert "would write to wrapped" in violation and inner.any()


class Counting(HostTensors):
    num_asked = 0

    def by_address(self) -> dict[int, str]:
        self.num_asked += 1
        return super().by_address()


@pytest.mark.parametrize(("num_writes", "asked"), [(0, 0), (1, 1), (3, 1)])
def test_where_the_hosts_memory_is_is_asked_at_the_first_write_of_a_close_look(num_writes: int, asked: int) -> None:
    host, own = nn.Linear(4, 3), torch.zeros(3)
    tensors = Counting(host)

    def write(*_: object) -> None:
        for _each in range(num_writes):
            own.add_(1.0)

    _, violation = GradientIsolationMonitor(Seed(host, write), tensors).run(
        call, torch.ones(2, 4), torch.ones(2, 3), closely=True
    )

    assert violation == ""
    assert tensors.num_asked == asked
    assert own.sum().item() == 3.0 * num_writes


def test_a_write_to_the_host_behind_one_to_the_seeds_own_is_stopped() -> None:
    host, own = nn.Linear(4, 3), torch.zeros(3)

    def write(*_: object) -> None:
        own.add_(1.0)
        host.weight.data.zero_()

    _, violation = GradientIsolationMonitor(Seed(host, write), HostTensors(host)).run(
        call, torch.ones(2, 4), torch.ones(2, 3), closely=True
    )

    assert "would write to weight" in violation and host.weight.any() and own.all()
