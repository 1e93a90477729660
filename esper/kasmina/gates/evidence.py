"""Measures what the gates judge; every figure is the mean over ranks, so that all of them judge alike."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap, zip_longest
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ablation import Holdout, cuda_devices, gains, paired_gain, undisturbed
from esper.kasmina.gates.ring import GraphCounts, Ring
from esper.kasmina.gates.rules import (
    GradientEvidence,
    ImpactEvidence,
    InterfaceEvidence,
    ResetEvidence,
    StabilityEvidence,
)
from esper.kasmina.isolation.foreign_code import BlueprintFault, delta_of, guarded
from esper.kasmina.seeds.seed import Seed, compiled_graphs
from esper.kasmina.slots.outputs import tensors_in
from esper.kasmina.slots.sites import absent
from esper.kasmina.slots.slot import SiteShape, Slot

Made = TypeVar("Made")
Value = float | Tensor | None
Reduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Sources:
    """What evidence is drawn from beside the model.

    `reduce` makes a tensor its mean over ranks, in place or not, and is called by all ranks alike; None: there are no
    others.
    """

    reduce: Reduce | None = None
    holdout: Holdout | None = None
    clock: Callable[[], float] = time.perf_counter


ALONE = Sources()
"""Of a rank without others, and without examples held out."""


@dataclass(slots=True)
class EvidenceCollector:
    """What evidence is drawn from. Changes no seed, and leaves the model's modes and generators as they were."""

    model: nn.Module
    config: KasminaConfig
    reduce: Reduce | None
    holdout: Holdout | None
    clock: Callable[[], float]
    losses: Ring
    graphs: GraphCounts
    has_optimizer: Callable[[str], bool] | None = None  # whether any holds state for this seed
    _fault: str = ""

    def mean(self, values: Sequence[Value]) -> list[float | None]:
        """Each value's mean over ranks; None unless every rank measured it. One collective, one wait."""
        if self.reduce is None and not any(isinstance(value, Tensor) for value in values):
            return [None if value is None else float(value) for value in values]
        mine = _packed(values, self.losses.device)
        packed = (mine if self.reduce is None else self.reduce(mine)).tolist()
        half = len(values)
        # A mean of flags may be a rounding error below 1.
        return [v if flag > 1 - 1e-6 else None for v, flag in zip(packed[:half], packed[half:], strict=True)]

    def gradient(self, slot: Slot, seed: Seed) -> GradientEvidence:
        meter, window = seed.meter, self.config.window
        first = meter.first_fits / window if meter.fits.total >= window else None
        found = self._over_holdout(gains, self.model, slot, self.holdout, 1.0) if self.holdout else None
        change = None if found is None else -found.mean()
        rings = [_mean(ring) for ring in (meter.fits, meter.ratios, meter.sizes)]
        offences = float(seed.violations + (seed.complaint is not None))  # one whose cull is pending does not go on
        values = [float(meter.fits.total), first, change, *rings, offences]
        steps, fit_first, probe_change, fit_last, ratio, size, violations = self.mean(values)
        return GradientEvidence(steps, fit_first, fit_last, probe_change, ratio, size, violations)

    def stability(self, slot: Slot, seed: Seed, step: int) -> StabilityEvidence:
        gap = abs(seed.schedule.at(step) - seed.schedule.target)
        held = float(seed.schedule.held_since is not None)
        recompiles = self._recompiles(seed, step)
        enough = self.losses.total - seed.losses_seen >= self.config.window
        window = self.losses.window() if enough else None
        variance = None if window is None else window.var() / window.mean().square().clamp_min(1e-30)
        return StabilityEvidence(*self.mean([gap, held, variance, recompiles, self._latency_ms(slot, seed)]))

    def interface(self, seed: Seed) -> InterfaceEvidence:
        meter = seed.meter
        drift = meter.drift if meter.num_batches else None
        counts = [float(n) for n in (meter.num_mismatches, meter.num_batches, meter.num_shadowed)]
        return InterfaceEvidence(*self.mean([*counts, drift]))

    def impact(self, slot: Slot, seed: Seed) -> ImpactEvidence:
        """Takes one look; the seed keeps what it saw."""
        seed.num_looks += 1
        sums: list[float | Tensor | None] = [None, None, None]
        differences = None
        if self.holdout is not None:
            differences = self._over_holdout(gains, self.model, slot, self.holdout, float(seed.alpha))
        if differences is not None:
            sums = [float(len(differences)), differences.sum(), differences.square().sum()]
        raised = float(bool(seed.fault))
        # By every rank: one without examples would leave the others waiting.
        count, total, squares, fault = self.mean([*sums, raised])
        if self.holdout is None or count is None or total is None or squares is None:
            return ImpactEvidence(None, None, None, None, seed.num_looks, fault)
        error = self.config.error_rate / self.config.max_looks
        gain = paired_gain(count, total, squares, error, len(self.holdout.batches))
        seed.paired_gain = gain
        return ImpactEvidence(count, gain.mean, gain.low, gain.high, seed.num_looks, fault)

    def reset(self, slot: Slot, seed: Seed) -> ResetEvidence:
        """What the seed left behind. Collects garbage where its tensors still live: a reference cycle is no leak."""
        held = 0 if seed.unfreed is None else seed.unfreed.bytes_held()
        if held and seed.unfreed is not None:
            gc.collect()
            held = seed.unfreed.bytes_held()
        holds = slot.seed is not None or seed.module is not None
        optimizers = None if self.has_optimizer is None else float(self.has_optimizer(seed.seed_id))
        hooks = 0 if seed.census is None else seed.census.added()
        return ResetEvidence(*self.mean([float(holds), optimizers, float(hooks), float(held), self.differing(slot)]))

    def _recompiles(self, seed: Seed, step: int) -> float | None:
        """Of the whole process, within the last window or since this seed had settled into blending."""
        if seed.graphs_seen is None:
            return None
        return float(compiled_graphs() - max(seed.graphs_seen, self.graphs.before(step - self.config.window)))

    def _latency_ms(self, slot: Slot, seed: Seed) -> float | None:
        if slot.shape is None or seed.module is None:
            return None
        x, h = slot.shape.probe()
        return 1e3 * min(self._timed(seed.module, x, h) for _ in range(5))

    def _timed(self, module: nn.Module, x: Tensor, h: Tensor) -> float:
        cuda = h.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize(h.device)
        begun = self.clock()
        with torch.no_grad():
            delta_of(module, x, h)
        if cuda:
            torch.cuda.synchronize(h.device)
        return self.clock() - begun

    def differing(self, slot: Slot) -> float | None:
        """Outputs that differ from those of the model without the slot's hook; None where nothing can be run."""
        if self.holdout is None:
            return _touched(slot.shape, slot)
        return self._over_holdout(_num_touched, self.model, slot, self.holdout)

    def _over_holdout(self, measure: Callable[..., Made], *args: Any) -> Made | None:
        """None where the host or its loss raises over the held-out examples: what fails to be measured stops nothing.

        As in a host that was given another precision, or another device, since they were handed over.
        """
        found = guarded(measure, *args)
        if isinstance(found, BlueprintFault):
            self._fault = f"held-out examples: {found.detail}"
            return None
        return found

    def take_fault(self) -> str:
        """Why something could not be measured; empty where all was, since it was last asked."""
        fault, self._fault = self._fault, ""
        return fault


def _packed(values: Sequence[Value], device: torch.device) -> Tensor:
    """The values, 0 for one that is None, and then for each whether it was measured; float64."""
    known = [float(value is not None) for value in values]
    numbers = [0.0 if value is None else value for value in values]
    if not any(isinstance(number, Tensor) for number in numbers):  # in one go: a tensor each would take 5 us
        return torch.tensor([*numbers, *known], dtype=torch.float64, device=device)
    each = [torch.as_tensor(number, dtype=torch.float64, device=device).detach() for number in numbers]
    return torch.cat([torch.stack(each), torch.tensor(known, dtype=torch.float64, device=device)])


def num_differing(output: object, other: object) -> float:
    """Elements that are not the same in both, of all tensors in two outputs; nan is the same as nan.

    One that the other has in another form, or not at all, as where a host gives what it has gathered, counts as one.
    """
    return sum(starmap(_num_differing, zip_longest(tensors_in(output), tensors_in(other))))


def _num_differing(one: Tensor | None, other: Tensor | None) -> float:
    if one is None or other is None or (one.shape, one.dtype) != (other.shape, other.dtype):
        return 1.0
    return float((~torch.isclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)).sum())


def _num_touched(model: nn.Module, slot: Slot, holdout: Holdout) -> float:
    inputs, _ = holdout.batches[0]
    with undisturbed(model) as buffers:
        through = holdout.call(model, inputs)
        buffers.put_back()
        with absent(slot):
            bare = holdout.call(model, inputs)
    return num_differing(through, bare)


def _touched(shape: SiteShape | None, slot: Slot) -> float | None:
    """Without held-out examples: whether the slot leaves a probe's output object alone."""
    return None if shape is None else float(slot.joined(*shape.probe()) is not None)


def _mean(ring: Ring) -> Tensor | None:
    window = ring.window()
    return None if window is None else window.mean()


class Generators:
    """The state of every global random number generator that a blueprint might draw from."""

    def __init__(self, model: nn.Module) -> None:
        self._devices = cuda_devices(model)
        self._torch = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]
        self._python = random.getstate()
        self._numpy = _numpy_state()

    def put_back(self) -> bool:
        """Whether any had moved."""
        moved = self._moved()
        if moved:
            self._put_back()
        return moved

    def _moved(self) -> bool:
        now = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]
        same = all(torch.equal(a, b) for a, b in zip(self._torch, now, strict=True))
        return not same or self._python != random.getstate() or _numbers(self._numpy) != _numbers(_numpy_state())

    def _put_back(self) -> None:
        torch.set_rng_state(self._torch[0])
        for device, state in zip(self._devices, self._torch[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        np.random.set_state(self._numpy)


def _numpy_state() -> dict[str, Any]:
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)  # as asked for
    return state


def _numbers(state: Mapping[str, Any]) -> dict[str, object]:
    """All of a state of whichever generator of numpy's: one draw of randn() may move no more than what is cached."""
    flat = {**state, "state": None, **state["state"]}
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in flat.items()}
