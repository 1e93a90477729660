"""Ranks that begin anew with other weights than most: they take those of most."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
import torch
import torch.distributed as dist
from torch import Tensor

from esper.errors import TrainingError
from esper.kernels.split import has_split
from esper.session.rank_status import RankStatus
from esper.tolaria.missing_ranks import absent
from esper.tolaria.state.bank import Bank
from esper.tolaria.state.digest import parameter_digest

log = structlog.get_logger()


def mend_parted(status: RankStatus, group: dist.ProcessGroup) -> None:
    """Have ranks whose parameters are not those of most take theirs, with what optimizers remember of them.

    All ranks call it before their first step. Where no majority holds the same, as of two ranks that differ, nobody
    knows who is right: that is told, and nothing changes. TrainingError names a rank that is gone meanwhile.
    """
    weights = status.weights()
    said = _said(parameter_digest(weights), group)
    [(most, num)] = Counter(said).most_common(1)
    if num == len(said):
        return
    parted = [rank for rank, digest in enumerate(said) if digest != most]
    if 2 * num <= len(said):
        log.error("replicas.parted", why="no majority of ranks holds the same parameters")
        return
    kept = status.optimizers.snapshot(Bank())
    tensors = [*(each.detach() for _, each in weights), *kept.tensors()]
    is_odd = has_split(status.model) or any(each.layout is not torch.strided for each in tensors)
    if len({*_said(_form(tensors), group)}) > 1 or is_odd:
        log.error("replicas.parted", ranks=parted, why="what their optimizers hold can't be handed over")
        return
    handed = [_handed(each, said.index(most), group) for each in tensors]
    if group.rank() in parted:
        for live, theirs in zip(tensors, handed, strict=True):
            live.copy_(theirs)
        status.optimizers.restore(kept, status.executor.seeds)
        log.warning("replicas.mended", ranks=parted, source=said.index(most))


def _said(digest: bytes, group: dist.ProcessGroup) -> list[bytes]:
    """What each rank has said, in their order."""
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    said = [torch.empty_like(mine) for _ in range(group.size())]
    with _others_named(group):
        dist.all_gather(said, mine, group=group)
    return [bytes(each.tolist()) for each in said]


def _form(tensors: Sequence[Tensor]) -> bytes:
    """Of what is to be handed over: ranks that hold other tensors would misread one another."""
    forms = [(tuple(each.shape), str(each.dtype), str(each.layout)) for each in tensors]
    return hashlib.sha256(repr(forms).encode()).digest()


def _handed(tensor: Tensor, source: int, group: dist.ProcessGroup) -> Tensor:
    """That of the rank `source` of the group, bit for bit.

    A sum, to which the others add nothing: in a broadcast not all notice that one is gone.
    """
    flat = tensor.contiguous().reshape(-1).view(torch.uint8).clone()
    if group.rank() != source:
        flat.zero_()
    with _others_named(group):
        dist.all_reduce(flat, group=group)
    return flat.view(tensor.dtype).view(tensor.shape)


@contextmanager
def _others_named(group: dist.ProcessGroup) -> Iterator[None]:
    """Ranks may notice in different tensors that another one is gone."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(
            f"rank {group.rank()} could not hold its parameters against those of {absent(group, 'parted')}, as every "
            f"rank does that resumes: {error}"
        ) from error
