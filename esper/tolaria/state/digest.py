"""Digests of parameters: a fast one of every element for each round, a strong one for reports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache, lru_cache
from operator import itemgetter

import torch
from torch import Tensor

ROW = 1 << 13  # lanes of 64 bits
CHUNK = 1 << 21  # lanes at a time
CHUNK_CPU = 1 << 17  # of each thread: 1 MiB stays in a core's cache for all three looks; the digest is the same for any
SMALL = 1 << 17  # bytes of a tensor that is copied beside others, so that one call sums them all
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
    heads, sums = list[bytes](), _Sums()
    rests: dict[tuple[int, bool], list[Tensor]] = {}
    for name, tensor in sorted(named, key=itemgetter(0)):
        heads.append(_head(name, tensor.shape, tensor.dtype))
        flat, kind = _real(tensor.detach()).reshape(-1), _kind(tensor.dtype)
        if kind[0] == 1:
            flat = flat.view(torch.int8)  # of types of four and eight bits torch has few operations
        num, per_row = flat.numel(), ROW * 8 // kind[0]
        whole = num // per_row * per_row
        if whole:
            sums.add([flat if whole == num else flat[:whole]], whole * kind[0], kind[1])
        if whole < num:
            rests.setdefault(kind, []).append(flat[whole:] if whole else flat)
    for (size, signed), parts in sorted(rests.items()):
        sums.add(*_filled_up(parts, size), signed)
    return hashlib.sha256(b"".join([*heads, sums.told()])).digest()


def strong_digest(named: Named) -> bytes:
    """sha256 over names, shapes, dtypes and all bytes; -0.0 counts as 0.0."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=itemgetter(0)):
        value = _canonical(_real(tensor.detach()).reshape(-1)).cpu().contiguous()
        digest.update(_head(name, tensor.shape, tensor.dtype))
        digest.update(value.view(torch.uint8).numpy().tobytes())
    return digest.digest()


class _Sums:
    """Of the rows and columns of 64-bit lanes, modulo 2**64, left on the devices until they are told."""

    def __init__(self) -> None:
        self._rows: dict[torch.device, list[Tensor]] = {}
        self._columns: dict[torch.device, Tensor] = {}
        self._few: list[Tensor] = []  # that wait to be summed in one go: the calls are what such sums take
        self._num_bytes, self._kind = 0, (torch.int8, False)

    def add(self, parts: list[Tensor], num_bytes: int, signed: bool) -> None:
        """Flat tensors of one kind that are whole rows, end to end; `signed` where -0.0 counts as 0.0."""
        if num_bytes > SMALL or not parts[0].is_cpu:
            self._sum_few()
            self._sum(parts, signed)
            return
        kind = parts[0].dtype, signed  # halves of two types come as integers
        if self._few and (self._kind != kind or self._num_bytes + num_bytes > CHUNK_CPU * 8):
            self._sum_few()
        self._few += parts
        self._num_bytes, self._kind = self._num_bytes + num_bytes, kind

    def _sum_few(self) -> None:
        if self._few:
            self._sum(self._few, self._kind[1])
            self._few, self._num_bytes = [], 0

    def _sum(self, parts: list[Tensor], signed: bool) -> None:
        bits = _bits(parts[0] if len(parts) == 1 else torch.cat(parts))
        device = bits.device
        lanes = CHUNK_CPU * torch.get_num_threads() if bits.is_cpu else CHUNK
        size, num = lanes * 8 // bits.element_size(), bits.numel()
        for start in range(0, num, size):
            columns, rows = _summed(bits if num <= size else bits[start : start + size], signed)
            self._rows.setdefault(device, []).append(rows)
            if device in self._columns:
                self._columns[device] += columns
            else:
                self._columns[device] = columns

    def told(self) -> bytes:
        """Read in one transfer per device."""
        self._sum_few()
        each_device = [each.cpu().view(FOLD, -1) for each in self._columns.values()]
        columns = each_device.pop() if each_device else torch.zeros(FOLD, ROW // FOLD, dtype=torch.int64, device="cpu")
        for more in each_device:
            columns += more
        told = [columns.sum(0), columns.sum(1), *(torch.cat(there).cpu() for there in self._rows.values())]
        return bytes(torch.cat(told).numpy().tobytes())


@lru_cache(maxsize=1 << 14)
def _head(name: str, shape: torch.Size, dtype: torch.dtype) -> bytes:
    """Made once: to format a shape and a type takes as long as to look at what a small tensor holds."""
    return f"{name}\0{tuple(shape)}\0{dtype}\n".encode()


@cache
def _zeros(dtype: torch.dtype, device: torch.device) -> Tensor:
    """A row of them."""
    return torch.zeros(ROW * 8 // dtype.itemsize, dtype=dtype, device=device)


@cache
def _kind(dtype: torch.dtype) -> tuple[int, bool]:
    """Bytes of a real element, and whether it has a bit pattern of -0.0."""
    real = dtype.to_real() if dtype.is_complex else dtype
    return real.itemsize, real.is_floating_point and real.itemsize > 1


def _bits(flat: Tensor) -> Tensor:
    """The elements as integers; a copy only where they do not lie so in memory."""
    flat = flat.contiguous()
    if flat.storage_offset() * flat.element_size() % 8:  # torch views eight bytes as one only where they are aligned
        flat = flat.clone()
    return flat.view(BITS[flat.element_size()])


def _filled_up(parts: list[Tensor], size: int) -> tuple[list[Tensor], int]:
    """On the first one's device and of one dtype, with zeros up to a whole number of rows; and how many bytes."""
    first = parts[0]
    if any(part.dtype is not first.dtype for part in parts):
        parts = [part.view(BITS[size]) for part in parts]
    if any(part.device != first.device for part in parts):
        parts = [part.to(first.device) for part in parts]
    num, per_row = sum([part.numel() for part in parts]), ROW * 8 // size
    lacking = -num % per_row
    return [*parts, _zeros(parts[0].dtype, first.device)[:lacking]], (num + lacking) * size


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
    return torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
