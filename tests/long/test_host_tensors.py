"""A host's own tensors, where they lie in memory, and what of them a look finds anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from esper.kasmina.isolation.monitor import HostTensors


def test_all_memory_of_a_host_is_known_by_the_names_of_its_tensors() -> None:
    host = nn.Sequential(nn.Linear(4, 3), nn.Embedding(5, 2, device="meta"))
    inner = torch.ones(3), torch.ones(3)
    host.register_buffer("sparse", torch.eye(3).to_sparse())
    host.register_buffer("wrapped", TwoTensor(*inner))  # type: ignore[no-untyped-call]
    host.register_buffer("view", torch.ones(4)[1:])
    host.register_buffer("empty", torch.ones(0))

    found = HostTensors(host).by_address()

    linear, view = host[0], host.get_buffer("view")
    assert isinstance(linear, nn.Linear)
    assert found == {
        linear.weight.untyped_storage().data_ptr(): "0.weight",
        linear.bias.untyped_storage().data_ptr(): "0.bias",
        view.data_ptr() - view.element_size(): "view",
        **{each.data_ptr(): "wrapped" for each in inner},
    }


def test_the_hosts_tensors_have_the_names_that_torch_gives_them() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.bias = first.bias
    host = nn.Sequential(first, nn.BatchNorm1d(2), nn.Sequential(second), first)

    watched = HostTensors(host)

    expected = {id(tensor): name for name, tensor in (*host.named_parameters(), *host.named_buffers())}
    found = [id(tensor) for tensor in watched.tensors]
    assert dict(zip(found, watched.names, strict=True)) == expected
    assert len(found) == len(expected)
    assert watched.ids == expected.keys()


def exchange_weight(host: nn.Sequential) -> None:
    host.get_submodule("0").weight = nn.Parameter(torch.ones(2, 2))


def exchange_module(host: nn.Sequential) -> None:
    host[1] = nn.BatchNorm1d(2)


def take_bias_away(host: nn.Sequential) -> None:
    host.get_submodule("0").register_parameter("bias", None)


def give_shape_to_lazy(host: nn.Sequential) -> None:
    host.get_submodule("2")(torch.ones(1, 2))


def nest(host: nn.Sequential) -> None:
    host.get_submodule("1").append_to = nn.Linear(1, 1)


def give_buffer(host: nn.Sequential) -> None:
    host.get_submodule("1").register_buffer("late", torch.ones(1))


@pytest.mark.parametrize(
    "change", [exchange_weight, exchange_module, take_bias_away, give_shape_to_lazy, nest, give_buffer]
)
def test_a_look_finds_what_has_changed_in_the_host(change: Callable[[nn.Sequential], None]) -> None:
    host = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LazyLinear(2))
    watched = HostTensors(host)

    change(host)
    watched.look()

    anew = HostTensors(host)
    assert watched.names == anew.names
    assert list(map(id, watched.tensors)) == list(map(id, anew.tensors))
    assert watched.ids == {id(tensor) for tensor in anew.tensors}


def test_a_look_at_a_host_that_is_as_it_was_makes_no_new_list() -> None:
    watched = HostTensors(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    before = watched.tensors

    watched.look()

    assert watched.tensors is before
