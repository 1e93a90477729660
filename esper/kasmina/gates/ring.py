"""The newest values of a run, kept on the device and read at flush points only."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

AT_ONCE = 32  # tensors that were added and have yet to be put in their places


class Ring:
    """The last `size` scalars, on the device. Adding one never waits for the device."""

    def __init__(self, size: int, device: torch.device, values: Tensor | None = None) -> None:
        """`values` is the memory to keep them in, float64 [size]; None means memory of its own."""
        self._values = torch.zeros(size, dtype=torch.float64, device=device) if values is None else values
        self._size, self.total = size, 0
        self._most_added = min(AT_ONCE, size)
        # Not in their places yet: to put many there takes hardly longer than one. Numbers wait until somebody reads.
        self._added: deque[Tensor | float] = deque(maxlen=size)

    @property
    def device(self) -> torch.device:
        return self._values.device

    @property
    def values(self) -> Tensor:
        """All places, also those that were never written."""
        self._put_in_place()
        return self._values

    def add(self, value: Tensor | float) -> None:
        """A number, or a 0-dim tensor, which nobody writes to from now on."""
        self.total += 1
        if not isinstance(value, Tensor):
            self._added.append(value)
            return
        self._added.append(value.detach() if value.requires_grad else value)
        if len(self._added) >= self._most_added:
            self._put_in_place()

    def extend(self, numbers: Sequence[float]) -> None:
        """Add many."""
        self.total += len(numbers)
        self._added.extend(numbers)

    def window(self) -> Tensor | None:
        """The values held once the ring is full; None before."""
        return self.values if self.total >= self._size else None

    def newest(self, num: int) -> Tensor | None:
        """The last `num` values, in no order; None where fewer were added, or are held."""
        if num > min(self.total, self._size):
            return None
        end, values = self.total % self._size, self.values
        return values[end - num : end] if end >= num else torch.cat((values[:end], values[end - num :]))

    def _put_in_place(self) -> None:
        if not self._added:
            return
        added = _in_one(self._added).to(self._values)
        self._added.clear()
        start = (self.total - len(added)) % self._size
        room = self._size - start
        self._values[start : start + len(added)] = added[:room]
        self._values[: max(0, len(added) - room)] = added[room:]


def _in_one(added: Collection[Tensor | float]) -> Tensor:
    """[num]. Only where there are numbers among tensors is a tensor read."""
    tensors = [value for value in added if isinstance(value, Tensor)]
    if len(tensors) == len(added):
        return torch.stack(tensors)
    return torch.tensor([float(value) for value in added], dtype=torch.float64, device="cpu")


@dataclass(frozen=True, slots=True)
class LossLevel:
    """Mean of some losses and the square of its standard error, on the device. The losses are taken as independent."""

    mean: Tensor
    error: Tensor

    @staticmethod
    def of(losses: Tensor | None) -> LossLevel | None:
        if losses is None or len(losses) < 2:
            return None
        mean = losses.mean()
        return LossLevel(mean, losses.var() / len(losses))

    @staticmethod
    def newest(losses: Ring, num: int) -> LossLevel | None:
        return LossLevel.of(losses.newest(num))


class GraphCounts:
    """How many graphs the process had compiled, looked up by step; the newest `num` notes are kept."""

    def __init__(self, num: int) -> None:
        self._notes: deque[tuple[int, int]] = deque(maxlen=num)

    def note(self, step: int, count: int) -> None:
        self._notes.append((step, count))

    def before(self, step: int) -> int:
        """At the last note up to `step`, or at the oldest one; 0 without any."""
        return max((count for at, count in self._notes if at <= step), default=self._notes[0][1] if self._notes else 0)
