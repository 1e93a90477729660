"""Masks and importance as the wire carries them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from esper.errors import RefusedError
from esper.kasmina.pruning.importance import Importance
from esper.kasmina.pruning.units import Key, Unit
from esper.kasmina.slots.naming import bare_name
from esper.leyline import contracts as pb

MOST_VALUES = 16_384  # in one message: three floats each make 192 KiB, well below a body's cap of 1 MiB


def bits_of(kept: Tensor) -> bytes:
    """A mask, bool, shape [n], as bits, least significant first."""
    padded = torch.zeros(-(-len(kept) // 8) * 8, dtype=torch.int64, device="cpu")
    padded[: len(kept)] = kept.cpu()
    rows = padded.reshape(-1, 8) << torch.arange(8, device="cpu")
    return bytes(rows.sum(1).tolist())


def mask_of(mask: pb.PruningMask) -> Tensor:
    """The mask of a message that is in range: bool, shape [num_channels]."""
    return kept_in(torch.tensor(list(mask.kept), device="cpu"), mask.num_channels)


def kept_in(bits: Tensor, num_channels: int) -> Tensor:
    """The inverse of `bits_of`, of bytes in a tensor: bool, shape [num_channels]."""
    return ((bits.long()[:, None] >> torch.arange(8, device="cpu")) & 1).flatten()[:num_channels].bool()


def masks_in(response: pb.StructuralPruningResponse, units: Mapping[Key, Unit]) -> dict[Key, Tensor]:
    """All masks by unit. Raises RefusedError for two of the same, and for one along another dimension."""
    found: dict[Key, Tensor] = {}
    for mask in response.pruning_masks:
        key = (bare_name(mask.parameter), int(mask.mask_type))
        if key in found:
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, f"two masks of {mask.parameter!r}; expected one")
        unit = units.get(key)
        if unit is not None and unit.dim != mask.dim:
            detail = f"mask of {mask.parameter!r} runs along dimension {mask.dim}; expected {unit.dim}"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        found[key] = mask_of(mask)
    return found


def importance_requests(
    head: pb.StructuralPruningRequest, units: Mapping[Key, Unit], stats: Mapping[Key, Importance]
) -> list[pb.StructuralPruningRequest]:
    """`head` with the importance of every unit, in as many parts as fit their envelopes."""
    parts = [*_parts([_entry(units[key], stats[key]) for key in units])]
    return [_with(head, entries, number, len(parts)) for number, entries in enumerate(parts)]


def _parts(entries: Sequence[pb.ChannelImportance]) -> Iterator[list[pb.ChannelImportance]]:
    part: list[pb.ChannelImportance] = []
    size = 0
    for entry in entries:
        if part and size + len(entry.taylor) > MOST_VALUES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry.taylor)
    yield part


def _with(
    head: pb.StructuralPruningRequest, entries: Sequence[pb.ChannelImportance], number: int, count: int
) -> pb.StructuralPruningRequest:
    request = pb.StructuralPruningRequest()
    request.CopyFrom(head)
    request.importance.extend(entries)
    request.part, request.num_parts = number, count
    return request


def _entry(unit: Unit, importance: Importance) -> pb.ChannelImportance:
    return pb.ChannelImportance(
        parameter=unit.parameter,
        mask_type=unit.mask_type,  # type: ignore[arg-type]
        dim=unit.dim,
        gradient_norm=importance.gradient_norm.tolist(),
        taylor=importance.taylor.tolist(),
        fisher=importance.fisher.tolist(),
    )
