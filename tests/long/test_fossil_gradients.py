"""Gradients of fossils, averaged over ranks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from esper.kasmina.slots.outputs import tensors_in
from esper.tolaria.fossils import FossilGradients


class Raises(torch.autograd.Function):
    """Its backward raises where it was told to."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, raises: bool) -> torch.Tensor:
        context.raises = raises
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        if context.raises:
            raise RuntimeError("out of memory")
        return gradients[0], None


def test_they_are_averaged_after_a_backward_that_raised() -> None:
    host, fossil = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    fossils = FossilGradients(lambda flat: flat / 2)  # the other rank has none
    fossils.adopt([fossil])

    def backward(raises: bool) -> None:
        (Raises.apply(host * 1.0, raises) * fossil).sum().backward()  # type: ignore[no-untyped-call]

    with pytest.raises(RuntimeError, match="out of memory"):
        backward(raises=True)
    host.grad = fossil.grad = None
    backward(raises=False)

    assert fossil.grad is not None
    assert fossil.grad.tolist() == [0.5, 0.5]


class Grown(nn.Module):
    """A host with a fossil that some batches leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fossil = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.body
        return y + self.fossil if float(x.detach().sum()) > 0.0 else y


class Other:
    """A rank whose gradient of the fossil is `gradient`, and what it was told."""

    def __init__(self, gradient: float) -> None:
        self.gradient, self.told = gradient, list[list[float]]()

    def mean(self, flat: torch.Tensor) -> torch.Tensor:
        self.told.append(flat.tolist())
        return (flat + torch.tensor([self.gradient, self.gradient, 1.0])) / 2


def grown(other: Other) -> tuple[Grown, FossilGradients]:
    """Where the other rank's share comes to the fossil's gradient."""
    host = Grown()
    fossils = FossilGradients(other.mean, host, tensors_in)
    fossils.adopt([host.fossil])
    return host, fossils


@pytest.mark.parametrize(("x", "own"), [(1.0, 1.0), (-1.0, 0.0)])
def test_a_rank_that_leaves_a_fossil_out_takes_its_share_of_the_other(x: float, own: float) -> None:
    host, _ = grown(Other(3.0))

    host(torch.full((2,), x)).sum().backward()

    assert host.fossil.grad is not None
    assert host.fossil.grad.tolist() == [(own + 3.0) / 2] * 2


def test_a_backward_of_two_forwards_is_averaged_once() -> None:
    other = Other(3.0)
    host, _ = grown(other)

    (host(torch.ones(2)) + host(-torch.ones(2))).sum().backward()

    assert other.told == [[1.0, 1.0, 1.0]]


def test_where_the_host_is_called_in_parts_a_fossils_own_backward_is_averaged() -> None:
    other = Other(3.0)
    host, _ = grown(other)

    torch.autograd.backward((host.body * host.fossil).sum())

    assert other.told == [[1.0, 1.0, 1.0]]


def test_a_gradient_that_one_rank_asks_for_is_not_averaged() -> None:
    other = Other(3.0)
    host, _ = grown(other)
    x = torch.ones(2, requires_grad=True)

    found = torch.autograd.grad(host(x).sum(), (x, host.body))  # as for a penalty, or a picture of what matters

    assert other.told == []
    assert [each.tolist() for each in found] == [[1.0, 1.0], [1.0, 1.0]]
    assert host.fossil.grad is None


def test_a_gradient_that_a_transform_makes_is_not_averaged() -> None:
    other = Other(3.0)
    host, _ = grown(other)
    given = {name: each.detach() for name, each in host.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        y: torch.Tensor = torch.func.functional_call(host, parameters, (torch.ones(2),))
        return y.sum()

    found = torch.func.grad(loss)(given)

    assert other.told == []
    assert found["body"].tolist() == [1.0, 1.0]


def test_a_backward_that_writes_to_some_parameters_is_averaged() -> None:
    other = Other(3.0)
    host, _ = grown(other)

    torch.autograd.backward(host(torch.ones(2)).sum(), inputs=[host.body])

    assert other.told == [[0.0, 0.0, 0.0]]


class Recomputed(Grown):
    """One all of whose parameters are written to by a backward within the backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(super().forward, x, use_reentrant=True)
        return y


def test_a_host_that_is_wholly_recomputed_is_averaged() -> None:
    other, host = Other(3.0), Recomputed()
    FossilGradients(other.mean, host, tensors_in).adopt([host.fossil])

    host(torch.ones(2, requires_grad=True)).sum().backward()

    assert other.told == [[1.0, 1.0, 1.0]]


class Always(Grown):
    """One that leaves nothing out: a choice by what a batch holds breaks a compiled graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.body + self.fossil


def test_a_compiled_host_is_averaged_also_behind_a_forward_that_was_not() -> None:
    other, host = Other(3.0), Always()
    FossilGradients(other.mean, host, tensors_in).adopt([host.fossil])
    compiled = torch.compile(host, backend="eager")

    compiled(torch.ones(2)).sum().backward()
    host(torch.ones(2))  # as for a figure that needs no backward
    compiled(torch.ones(2)).sum().backward()

    assert len(other.told) == 2


def test_fossils_on_several_devices_are_averaged_on_that_of_the_first() -> None:
    one, other = (nn.Parameter(torch.ones(2, device=device)) for device in ("meta", "cpu"))
    told: list[torch.Tensor] = []

    def mean(flat: torch.Tensor) -> torch.Tensor:
        told.append(flat)
        return torch.arange(6.0)  # the means of both, and that each has one

    FossilGradients(mean).adopt([one, other])

    torch.autograd.backward([one.sum(), other.sum()])

    assert [each.device.type for each in told] == ["meta"]
    assert other.grad is not None
    assert other.grad.tolist() == [2.0, 3.0]


def test_copies_of_the_host_average_nothing() -> None:
    other = Other(3.0)
    host, _ = grown(other)

    copy.deepcopy(host)(torch.ones(2)).sum().backward()

    assert other.told == []


def test_nothing_hangs_on_the_host_once_fossils_are_released() -> None:
    host, fossils = grown(Other(3.0))

    fossils.release()

    assert not host._forward_hooks
    assert not host.fossil._post_accumulate_grad_hooks


def grown_in_ddp(other: Other, host: Grown) -> tuple[DistributedDataParallel, Grown]:
    """DDP knows of the body alone."""
    fossil = host.fossil
    del host.fossil
    host.fossil = torch.zeros(2)  # type: ignore[assignment]
    model = DistributedDataParallel(host)
    del host.fossil
    host.fossil = fossil
    FossilGradients(other.mean, host, tensors_in, model).adopt([fossil])
    return model, host


@pytest.mark.usefixtures("process_group")
def test_what_accumulates_below_no_sync_is_averaged_with_the_last_of_it() -> None:
    other = Other(3.0)
    model, host = grown_in_ddp(other, Grown())

    with model.no_sync():
        model(torch.ones(2)).sum().backward()
    assert other.told == []
    model(torch.ones(2)).sum().backward()

    assert other.told == [[2.0, 2.0, 1.0]]
    assert host.fossil.grad is not None
    assert host.fossil.grad.tolist() == [2.5, 2.5]


class Sometimes(Grown):
    """One that a whole graph is made of, with the fossil and without."""

    leaves_out = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.body
        return y if self.leaves_out else y + self.fossil


@pytest.mark.usefixtures("process_group")
def test_a_compiled_rank_that_leaves_a_fossil_out_takes_its_share_of_the_other() -> None:
    other, host = Other(3.0), Sometimes()
    model, _ = grown_in_ddp(other, host)
    compiled = torch.compile(model, backend="eager")

    compiled(torch.ones(2)).sum().backward()
    host.leaves_out, host.fossil.grad = True, None
    compiled(torch.ones(2)).sum().backward()

    assert other.told == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert host.fossil.grad is not None
    assert host.fossil.grad.tolist() == [1.5, 1.5]


@pytest.mark.usefixtures("process_group")
def test_what_a_compiled_host_accumulates_below_no_sync_is_averaged_with_the_last_of_it() -> None:
    other = Other(3.0)
    model, _ = grown_in_ddp(other, Sometimes())
    compiled = torch.compile(model, backend="eager")

    with model.no_sync():
        compiled(torch.ones(2)).sum().backward()
    assert other.told == []
    compiled(torch.ones(2)).sum().backward()

    assert other.told == [[2.0, 2.0, 1.0]]


@pytest.mark.usefixtures("process_group")
def test_a_backward_beside_ddp_is_left_to_the_rank_that_runs_it() -> None:
    other = Other(3.0)
    model, host = grown_in_ddp(other, Grown())
    model(torch.ones(2)).sum().backward()

    host(torch.ones(2)).sum().backward()

    assert len(other.told) == 1


@pytest.mark.usefixtures("process_group")
def test_what_ddp_was_wrapped_around_anew_is_left_to_it() -> None:
    other = Other(3.0)
    host, _ = grown(other)
    host(torch.ones(2)).sum().backward()

    DistributedDataParallel(host)(torch.ones(2)).sum().backward()

    assert len(other.told) == 1
