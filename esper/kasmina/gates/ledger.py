"""What the seeds of one device are measured by: a row for each, written and summed up for all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ring import Ring
from esper.kasmina.isolation.graph import sent
from esper.kasmina.seeds.state_tensor import GPUStateTensor

TINY = 1e-30
INF = float("inf")
NUM_ROWS = 64
STEPS = 8  # that wait at most
MOST_OUTSIDE = 1024  # calls between two steps whose notes are held at most

# Sums over calls: relative fit, calls that have one, norm(delta) / norm(h), calls, calls in which the seed was gated
# away, samples that were not finite, calls while SHADOWING.
FIT, FITS, SIZE, CALLS, STRIKES, NON_FINITE, SHADOWED = range(7)
NUM_FIGURES = SHADOWED + 1
# Rings of one value a step, and single values.
RING_FITS, RING_SIZES, RING_RATIOS = range(3)
FIRST_FITS, GRADIENT_NORM, DRIFT = range(3)


class Call(NamedTuple):
    """One call of a seed: norms per sample, of the host's output and of delta."""

    row: int
    of_host: Tensor
    of_delta: Tensor


class Fitted(NamedTuple):
    """A call in TRAINING, noted in its backward: norms of the host's gradient g, and of g + delta / mu."""

    call: Call
    gradient: Tensor
    towards: Tensor


class Blended(NamedTuple):
    """A call in a blended stage, noted in its backward: norms per sample of the value that took the output's place."""

    call: Call
    of_value: Tensor
    shadowing: bool


Note = Fitted | Blended


class Step(NamedTuple):
    """An optimizer step that is over: what its calls noted, and norms of gradients, float64, the seeds' by row."""

    notes: Sequence[Note]
    of_host: Tensor
    rows: Sequence[int]
    norms: Tensor


class Ledger:
    """A row for each of up to `num_rows` seeds. Judges nothing, and waits for the device nowhere.

    Calls leave notes, a module used twice in a forward two of them. The notes of several steps are summed up together,
    when someone reads or `STEPS` of them wait: a tensor operation costs as much for 500 numbers as for one. What is
    written does not depend on when that is. Fits, sizes and ratios become means over the calls of one optimizer step,
    so that a window counts steps; the rest is summed over calls.
    """

    def __init__(self, config: KasminaConfig, device: torch.device, num_rows: int = NUM_ROWS) -> None:
        self.config, self.device = config, device
        self.window, self.rho, self.limit = config.window, config.rho, 10.0 * config.rho_max
        self.calls: list[Note] = []  # of the step under way
        self.is_under_way = True  # else what calls note is of no step
        self._steps: list[Step] = []  # that are over, and not written yet
        self.sums, self.levels = self._zeros(num_rows, NUM_FIGURES), self._zeros(num_rows, 3)
        self.values = self._zeros(num_rows, 3, self.window)
        self.rings = [[Ring(self.window, device, values) for values in row] for row in self.values]
        self.states = GPUStateTensor(num_rows, device)  # of the same rows
        self._free = [*reversed(range(num_rows))]

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    # -- rows --------------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return not self._free

    def take(self) -> int:
        """A row of zeros, the caller's until it gives it back."""
        row = self._free.pop()
        self.clear(row)
        return row

    def give_back(self, row: int) -> None:
        """Touches no tensor: garbage is collected anywhere, in the midst of a tracing or below a mode of torch's."""
        self._free.append(row)

    def clear(self, row: int) -> None:
        self.write()
        self.forget_calls(row)
        for tensor in (self.sums, self.levels, self.values):
            tensor[row].zero_()
        for ring in self.rings[row]:
            ring.total = 0

    def forget_calls(self, row: int) -> None:
        """What calls noted and no step has taken."""
        self.calls = [note for note in self.calls if note.call.row != row]

    def copy(self, row: int, source: Ledger, at: int) -> None:
        """Let `row` be what row `at` of `source` is; between two steps."""
        source.leave_out()
        source.write()
        self.clear(row)
        for ours, theirs in ((self.sums, source.sums), (self.levels, source.levels), (self.values, source.values)):
            ours[row].copy_(theirs[at])
        for ring, other in zip(self.rings[row], source.rings[at], strict=True):
            ring.total = other.total

    # -- steps -------------------------------------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        """In a call's backward. A script may go back between two steps for ever, and nothing piles up."""
        self.calls.append(note)
        if not self.is_under_way and len(self.calls) >= MOST_OUTSIDE:
            self.leave_out()

    def close_step(self, of_host: Tensor, rows: Collection[int], measured: Sequence[int], norms: Tensor) -> None:
        """End the step of these rows, once the seeds' gradients were averaged.

        `norms`, float64, are those of the rows `measured`; the others have no gradient.
        """
        taken = [note for note in self.calls if note.call.row in rows]
        self.calls = [] if len(taken) == len(self.calls) else [c for c in self.calls if c.call.row not in rows]
        self._steps.append(Step(taken, of_host, measured, norms))
        if len(self._steps) >= min(STEPS, self.window):
            self.write()

    def totals(self) -> Tensor:
        """Sums over all calls, those of the step under way too, [rows, NUM_FIGURES]."""
        self.write()
        return self.sums + self._by_row(self.calls) if self.calls else self.sums

    def leave_out(self) -> None:
        """Calls that no optimizer step has taken enter no window; their sums count."""
        if self.calls:
            self.sums += self._by_row(self.calls)
            self.calls.clear()

    def _by_row(self, notes: Sequence[Note]) -> Tensor:
        with torch.no_grad():
            return self._summed(notes, [note.call.row for note in notes], len(self.sums))

    def means(self) -> Tensor:
        """Of each ring, in the order of RING_*, [rows, 3]; NaN where one is not full."""
        self.write()
        full = sent([ring.total >= self.window for row in self.rings for ring in row], self.device)
        return torch.where(full.view(-1, 3).bool(), self.values.mean(2), torch.nan)

    def write(self) -> None:
        """Write what steps have left; every reader calls it first."""
        if not self._steps:
            return
        steps, self._steps = self._steps, []
        with torch.no_grad():
            values, places = list[Tensor](), list[int]()
            for written, where in (self._write_calls(steps), self._write_norms(steps)):
                values += written
                places += where
            if values:
                self.values.view(-1).index_copy_(0, sent(places, self.device), torch.cat(values))

    def _write_calls(self, steps: Sequence[Step]) -> tuple[list[Tensor], list[int]]:
        """Sizes and fits, and their places in the rings. A sum for each row in each step."""
        keys: dict[tuple[int, int, bool], int] = {}
        where = [
            keys.setdefault((number, note.call.row, isinstance(note, Fitted)), len(keys))
            for number, step in enumerate(steps)
            for note in step.notes
        ]
        if not keys:
            return [], []
        sums = self._summed([note for step in steps for note in step.notes], where, len(keys))
        self.sums.index_add_(0, sent([row for _, row, _ in keys], self.device), sums)
        sizes, places = sums[:, SIZE] / sums[:, CALLS], self._places((row for _, row, _ in keys), RING_SIZES)
        fits, where_fits = self._fits(sums, [(at, row) for at, (_, row, fitted) in enumerate(keys) if fitted])
        return [sizes, *fits], places + where_fits

    def _fits(self, sums: Tensor, fitted: Sequence[tuple[int, int]]) -> tuple[list[Tensor], list[int]]:
        """Of each step, by its place in the sums and its row, and their places in the rings.

        Backward passes in which the host's own gradient overflowed were left out.
        """
        if not fitted:
            return [], []
        chosen = sums[sent([at for at, _ in fitted], self.device)]
        fits = chosen[:, FIT] / chosen[:, FITS].clamp_min(1.0)
        early, places = list[tuple[int, int]](), list[int]()
        for at, (_, row) in enumerate(fitted):  # one that comes twice may be early once
            if self.rings[row][RING_FITS].total < self.window:
                early.append((at, 3 * row + FIRST_FITS))
            places += self._places((row,), RING_FITS)
        if early:
            first = sent([place for _, place in early], self.device)
            self.levels.view(-1).index_add_(0, first, fits[sent([at for at, _ in early], self.device)])
        return [fits], places

    def _write_norms(self, steps: Sequence[Step]) -> tuple[list[Tensor], list[int]]:
        """Ratios of the seeds' gradients to the host's, and their places in the rings."""
        rows = [row for step in steps for row in step.rows]
        if not rows:
            return [], []
        of_seeds, of_hosts = (
            torch.cat([step.norms for step in steps]),
            torch.stack([step.of_host for step in steps]).clamp_min_(TINY),
        )
        number = sent([number for number, step in enumerate(steps) for _ in step.rows], self.device)
        newest = {3 * row + GRADIENT_NORM: at for at, row in enumerate(rows)}
        self.levels.view(-1)[sent([*newest], self.device)] = of_seeds[sent([*newest.values()], self.device)]
        return [of_seeds / of_hosts[number]], self._places(rows, RING_RATIOS)

    def _places(self, rows: Iterable[int], ring: int) -> list[int]:
        """Where the next value of that ring belongs, of each row; one that comes twice has two."""
        rings, window, places = self.rings, self.window, list[int]()
        for row in rows:
            own = rings[row][ring]
            places.append((3 * row + ring) * window + own.total % window)
            own.total += 1
        return places

    # -- calls -------------------------------------------------------------------------------------------------------

    def _summed(self, notes: Sequence[Note], where: Sequence[int], num: int) -> Tensor:
        """Sums of the notes that go to the same place, [num, NUM_FIGURES]. Notes the drifts."""
        sums = self._zeros(num, NUM_FIGURES)
        groups: dict[object, list[int]] = {}
        for at, note in enumerate(notes):
            samples = note.call.of_host
            groups.setdefault((samples.shape, samples.dtype, type(note)), []).append(at)
        for group in groups.values():
            figures = self._figures([notes[at] for at in group])
            sums.index_add_(0, sent([where[at] for at in group], self.device), figures)
        return sums

    def _figures(self, notes: Sequence[Note]) -> Tensor:
        """Rows of figures, of calls of one kind with as many samples each.

        A strike is a call with any value that is not finite, or with most samples out of size.
        """
        num = len(notes)
        norms = torch.stack([note.call.of_host for note in notes] + [note.call.of_delta for note in notes]).flatten(1)
        host, delta = norms[:num], norms[num:]
        whole = torch.linalg.vector_norm(norms, dim=1, dtype=torch.float64)
        of_host, of_delta = whole[:num].clamp_min(TINY), whole[num:]
        there = host < INF
        lost = (there & ~(delta < INF)).sum(1)
        small = ((delta <= self.limit * host) | ~there).sum(1)
        strikes = (lost > 0) | (small <= (host.shape[1] - 1) // 2)
        sizes, one = of_delta / of_host, torch.ones_like(of_host)
        fitted = [note for note in notes if isinstance(note, Fitted)]
        blended = [note for note in notes if isinstance(note, Blended)]
        fits, there = _fits(fitted, sizes / self.rho) if fitted else (one - one, one - one)
        shadowed = sent([note.shadowing for note in blended], self.device) if blended else one - one
        if blended:
            self._note_drifts(blended, of_host)
        return torch.stack([each.double() for each in (fits, there, sizes, one, strikes, lost, shadowed)], 1)

    def _note_drifts(self, notes: Sequence[Blended], of_host: Tensor) -> None:
        norms = torch.stack([note.of_value for note in notes]).view(len(notes), -1)
        of_value = torch.linalg.vector_norm(norms, dim=1, dtype=torch.float64)
        drifts = (of_value / of_host - 1.0).abs_()
        drifts = torch.where(of_host < INF, drifts, 0.0)  # a host that is not finite is not the seed's doing
        places = sent([3 * note.call.row + DRIFT for note in notes], self.device)
        self.levels.view(-1).scatter_reduce_(0, places, drifts, "amax")


def _fits(notes: Sequence[Fitted], lengths: Tensor) -> tuple[Tensor, Tensor]:
    """norm(delta + mu * g) over norm(mu * g), squared, and whether there is one: the host's gradient may overflow.

    `lengths`, norm(delta) over norm(mu * g), are what is left of it where g is zero.
    """
    norms = torch.stack([note.gradient for note in notes] + [note.towards for note in notes]).double()
    gradient, towards = norms[: len(notes)], norms[len(notes) :]
    there = gradient.isfinite()
    fits = torch.where(gradient > 0.0, towards / gradient.clamp_min(TINY), lengths).square_()
    return torch.where(there, fits, 0.0), there
