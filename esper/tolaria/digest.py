"""Digests of parameters: a fast one of every element for each round, a strong one for reports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

ROW = 1 << 13  # lanes of 64 bits
CHUNK = 1 << 21  # lanes at a time
CHUNK_CPU = 1 << 17  # of each thread: 1 MiB stays in a core's cache for all three looks; the digest is the same for any
FOLD = 1 << 6  # the sums of columns are summed in turn, as so many rows
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # of an element, by its size in bytes

Named = Iterable[tuple[str, Tensor]]


def parameter_digest(named: Named) -> bytes:
    """32 bytes that change with any one element, with any two, and with any two unequal elements exchanged.

    The bytes lie in rows of 8,192 lanes of 64 bits: each tensor's whole rows, and behind them what is left of each.
    A sum per row and one per column, modulo 2**64, are hashed: two lanes that change are in two rows or in two columns.
    Sums of integers are the same in any order, on any device and for any number of threads. Not proof against somebody
    who looks for a collision: see strong_digest. Names are sorted; -0.0 counts as 0.0.
    """
    digest, sums = hashlib.sha256(), _Sums()
    rests: dict[tuple[int, bool], list[Tensor]] = {}
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\n".encode())
        bits, signed = _bits(tensor), _has_negative_zero(tensor)
        per_row = ROW * 8 // bits.element_size()
        whole = bits.numel() // per_row * per_row
        if whole:
            sums.add(bits[:whole], signed)
        if whole < bits.numel():
            rests.setdefault((bits.element_size(), signed), []).append(bits[whole:])
    for (_, signed), parts in sorted(rests.items()):
        sums.add(_laid_end_to_end(parts), signed)
    digest.update(sums.told())
    return digest.digest()


def strong_digest(named: Named) -> bytes:
    """sha256 over names, shapes, dtypes and all bytes; -0.0 counts as 0.0."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        value = _canonical(_real(tensor.detach()).reshape(-1)).cpu().contiguous()
        digest.update(f"{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\n".encode())
        digest.update(value.view(torch.uint8).numpy().tobytes())
    return digest.digest()


class _Sums:
    """Of the rows and columns of 64-bit lanes, modulo 2**64, left on the devices until they are told."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._columns: dict[torch.device, Tensor] = {}

    def add(self, bits: Tensor, signed: bool) -> None:
        """Whole rows; `signed` where the bit pattern of -0.0 counts as 0."""
        lanes = CHUNK_CPU * torch.get_num_threads() if bits.device.type == "cpu" else CHUNK
        size = lanes * 8 // bits.element_size()
        for start in range(0, bits.numel(), size):
            columns, rows = _summed(bits[start : start + size], signed)
            self._rows.append(rows)
            if bits.device in self._columns:
                self._columns[bits.device] += columns
            else:
                self._columns[bits.device] = columns

    def told(self) -> bytes:
        """Read in one transfer per device."""
        columns = torch.zeros(FOLD, ROW // FOLD, dtype=torch.int64, device="cpu")
        for each in self._columns.values():
            columns += each.cpu().view_as(columns)
        rows: dict[torch.device, list[Tensor]] = {}
        for each in self._rows:
            rows.setdefault(each.device, []).append(each)
        told = [columns.sum(0), columns.sum(1), *(torch.cat(there).cpu() for there in rows.values())]
        return torch.cat(told).numpy().tobytes()


def _bits(tensor: Tensor) -> Tensor:
    """The elements as integers, flat; a copy only where they do not lie so in memory."""
    real = _real(tensor.detach())
    flat = real.reshape(-1).contiguous()
    if flat.storage_offset() * flat.element_size() % 8:  # torch views eight bytes as one only where they are aligned
        flat = flat.clone()
    return flat.view(BITS[flat.element_size()])


def _has_negative_zero(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1


def _laid_end_to_end(parts: list[Tensor]) -> Tensor:
    """On the first one's device, filled up to a whole number of rows."""
    per_row, home = ROW * 8 // parts[0].element_size(), parts[0].device
    lacking = -sum(part.numel() for part in parts) % per_row
    return torch.cat([*(part.to(home) for part in parts), parts[0].new_zeros(lacking)])


def _summed(bits: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Of whole rows per column and per row; `signed` where the bit pattern of -0.0, the lowest integer, counts as 0.

    On the CPU that is replaced, in a copy, only where it is found: looked for once the sums have the piece in the
    cache, as they fetch it faster than a minimum does. On other devices to look would be to wait.
    """
    lowest, is_cpu = torch.iinfo(bits.dtype).min, bits.device.type == "cpu"
    if signed and not is_cpu:
        return _lane_sums(bits.masked_fill(bits == lowest, 0))
    sums = _lane_sums(bits)
    if signed and int(bits.amin()) == lowest:
        sums = _lane_sums(bits.masked_fill(bits == lowest, 0))
    return sums


def _lane_sums(bits: Tensor) -> tuple[Tensor, Tensor]:
    rows = bits.view(torch.int64).view(-1, ROW)
    return rows.sum(0), rows.sum(1)


def _canonical(value: Tensor) -> Tensor:
    """-0.0 + 0.0 is 0.0; every other value stays as it is."""
    return value + 0.0 if value.is_floating_point() and value.element_size() > 1 else value.contiguous()


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
