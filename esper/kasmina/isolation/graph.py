"""What can be read off tensors without waiting for their device: where a graph ends, and how large groups are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from itertools import islice
from math import hypot
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

# The node that adds a gradient to a leaf: torch gives its class no name.
LEAF = torch.ones((), requires_grad=True, device="cpu")
ACCUMULATE_GRAD: Any = type(LEAF.view(()).grad_fn.next_functions[0][0])  # type: ignore[union-attr]

REALS = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
is_sparse = attrgetter("is_sparse")


class Walk(NamedTuple):
    """What a walk from delta to its leaves met: leaves that are not the seed's own, and nodes in all."""

    num_stray: int
    num_nodes: int


class Measured(NamedTuple):
    """Gradients of a seed, and the L2 norm of all of them."""

    gradients: Sequence[Tensor]
    norm: float


def walk(delta: Tensor, own: Collection[int]) -> Walk:
    """Follow delta's graph to its leaves; `own` are the ids of tensors that it may reach. About 1 us a node."""
    if delta.grad_fn is None:
        return Walk(int(delta.requires_grad and id(delta) not in own), 0)
    seen: set[Any] = {delta.grad_fn}
    nodes: list[Any] = [delta.grad_fn]
    num_stray = 0
    for node in nodes:  # which grows
        parents = node.next_functions
        if not parents:
            num_stray += type(node) is ACCUMULATE_GRAD and id(node.variable) not in own
        for parent, _ in parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                nodes.append(parent)
    return Walk(num_stray, len(seen))


def batched_norms(groups: Sequence[Sequence[Tensor]]) -> Tensor:
    """L2 norm of each group of tensors, float64 [groups]; 0 for an empty group. A sparse one counts by its values."""
    tensors = [tensor for group in groups for tensor in group]
    dtypes = {tensor.dtype for tensor in tensors}
    if not dtypes <= REALS or any(map(is_sparse, tensors)):
        tensors = [_reals(tensor) for tensor in tensors]
        dtypes = {tensor.dtype for tensor in tensors}
    norms = torch._foreach_norm(tensors, 2, dtype=reduce(torch.promote_types, dtypes, torch.float32))
    if is_at_hand(norms[0]):  # numbers cost less than as many tensors without dimensions
        each = iter([norm.item() for norm in norms])
        of_groups = [hypot(*islice(each, len(group))) for group in groups]  # to the bit what whoever clips would find
        return torch.tensor(of_groups, dtype=torch.float64, device="cpu")
    squares = torch.stack(norms).double().square_()
    of_group = sent([at for at, group in enumerate(groups) for _ in group], squares.device)
    return squares.new_zeros(len(groups)).index_add_(0, of_group, squares).sqrt_()


def is_at_hand(tensor: Tensor) -> bool:
    """Whether to read it is to wait for nothing."""
    return tensor.is_cpu and type(tensor) is Tensor


def _reals(tensor: Tensor) -> Tensor:
    """What the norm of all of them is also the norm of."""
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    return torch.view_as_real(values) if values.is_complex() else values


def sent(numbers: Sequence[int], device: torch.device) -> Tensor:
    """As int64 on the device, without waiting for it: a copy from pageable memory would."""
    made = torch.tensor(numbers, dtype=torch.int64, device="cpu")
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)
