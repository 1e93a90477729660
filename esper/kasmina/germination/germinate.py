"""Builds a seed's module and gathers what gate G0 judges."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from esper.errors import RefusedError
from esper.kasmina.gates.ablation import cuda_devices
from esper.kasmina.gates.evidence import EvidenceCollector, Generators, Value
from esper.kasmina.gates.rules import SanityEvidence
from esper.kasmina.germination.weighing import weighed
from esper.kasmina.isolation.foreign_code import BlueprintFault, delta_of, guarded
from esper.kasmina.isolation.hooks import NewHooks
from esper.kasmina.isolation.monitor import GradientIsolationMonitor
from esper.kasmina.slots.outputs import dtype_of
from esper.kasmina.slots.slot import Prepared, SiteShape, Slot
from esper.kernels.blueprints import Blueprint
from esper.kernels.kernel import Kernel
from esper.leyline import contracts as pb

UNSEEN = SanityEvidence(0.0, *[None] * 9)
SEEN = replace(UNSEEN, seen=1.0)
FAULTY = replace(SEEN, fault=1.0)
MOST_WEIGHTS = 64  # of one site


@dataclass(frozen=True, slots=True)
class Findings:
    """What this rank saw of a kernel when it was built."""

    evidence: SanityEvidence
    fault: str = ""  # what the blueprint's code raised, or where it reached beyond its own
    misfit: str = ""  # why the blueprint does not fit the site
    prepared: Prepared | None = None  # for the slot, where there is a module
    layout: int = 0  # a checksum of the names and shapes of its parameters, and of how many numbers were drawn


def built(
    collector: EvidenceCollector, slot: Slot, blueprint: Blueprint, parameters: Mapping[str, float], rng_seed: int
) -> Kernel:
    """A kernel with its Findings. The global generators and the host's hooks are as before.

    Where a generator has moved it is built again: a blueprint that draws does so each time, another thread that drew
    meanwhile (one that augments, or steers the run) hardly.
    """
    if slot.shape is None:
        return Kernel(None, Findings(UNSEEN))
    look = partial(_looked_at, collector, slot, slot.shape, blueprint, parameters, rng_seed)
    module, findings = look()
    if findings.evidence.draws:
        module, findings = look()
    return Kernel(module, findings)


def _looked_at(
    collector: EvidenceCollector,
    slot: Slot,
    shape: SiteShape,
    blueprint: Blueprint,
    parameters: Mapping[str, float],
    rng_seed: int,
) -> tuple[nn.Module | None, Findings]:
    generators, hooks = Generators(collector.model), NewHooks(collector.model)
    module, findings = _built(collector, slot, shape, blueprint, parameters, rng_seed)
    evidence = replace(findings.evidence, draws=float(generators.put_back()), hooks=float(hooks.remove()))
    return module, replace(findings, evidence=evidence)


def agreed(collector: EvidenceCollector, blueprint: Blueprint, findings: Findings) -> SanityEvidence:
    """Evidence of all ranks, which must all call this. RefusedError on every one where the blueprint misfits on any."""
    names = ("seen", "fault", "non_finite", "seed_bytes", "shape_ok", "identity", "draws", "stray_leaves", "hooks")
    # What one rank saw first may be of another size, or drawn otherwise: seeds that differ could not be averaged.
    short_digest = float(int(blueprint.digest[:8], 16) ^ findings.layout)
    values: list[Value] = [getattr(findings.evidence, name) for name in names]
    *means, misfits, digest = collector.mean([*values, float(bool(findings.misfit)), short_digest])
    if misfits:
        detail = findings.misfit or f"blueprint {blueprint.blueprint_id} does not fit the site on another rank"
        raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
    gap = None if digest is None else abs(digest - short_digest)
    # A gap on one rank must be seen by all: each adds its own.
    (gap,) = collector.mean([gap])
    return SanityEvidence(**dict(zip(names, means, strict=True)), digest_gap=gap)


def seed_dtype(slot: Slot, shape: SiteShape) -> torch.dtype:
    """That of the site's parameters, or of what flows into it where it has none."""
    return dtype_of(slot.module) or shape.input_dtype


def _built(
    collector: EvidenceCollector,
    slot: Slot,
    shape: SiteShape,
    blueprint: Blueprint,
    parameters: Mapping[str, float],
    rng_seed: int,
) -> tuple[nn.Module | None, Findings]:
    if slot.unbroken:
        why = "its host is compiled with fullgraph=True, and a seed is a break in the graph"
        return None, Findings(FAULTY, misfit=f"{why}; site {slot.name!r}")
    misfit = guarded(blueprint.fits, slot.module, shape.input, shape.output, parameters)
    if isinstance(misfit, BlueprintFault):
        return None, Findings(FAULTY, fault=misfit.detail)
    if misfit is not None:
        return None, Findings(FAULTY, misfit=f"{misfit}; site {slot.name!r}")
    build = partial(blueprint.build, slot.module, shape.input, shape.output, parameters)
    devices = cuda_devices(collector.model)
    with _on_cpu(), torch.random.fork_rng(devices):
        size, limit = _weight(slot, shape, blueprint, parameters, build), collector.config.seed_memory_bytes
        if size > limit:
            detail = f"its parameters would take {size:,} bytes; seed_memory_bytes is {limit:,}; site {slot.name!r}"
            return None, Findings(
                FAULTY, misfit=f"blueprint {blueprint.blueprint_id} with {dict(parameters)}: {detail}"
            )
        torch.default_generator.manual_seed(rng_seed)  # torch.manual_seed takes 1 ms where CUDA isn't initialised
        if devices:
            torch.cuda.manual_seed_all(rng_seed)
        module = guarded(build)
        drawn = torch.get_rng_state()
    if isinstance(module, BlueprintFault):
        return None, Findings(FAULTY, fault=module.detail)
    if unshaped := [name for name, each in module.named_parameters() if is_lazy(each)]:
        return None, Findings(FAULTY, fault=f"{unshaped[0]} is of a lazy layer; expected one that is given its sizes")
    named = [*module.named_parameters(), *module.named_buffers()]
    if turning := [name for name, each in named if each.is_complex()]:  # torch would keep their real part alone
        return None, Findings(FAULTY, fault=f"{turning[0]} is complex; expected tensors of the site's precision")
    module = _placed(module, shape.device, seed_dtype(slot, shape))
    slot.watched.look()
    findings = _probed(module, shape, GradientIsolationMonitor(module, slot.watched))
    return module, replace(findings, layout=_layout(module, drawn))


def _weight(
    slot: Slot, shape: SiteShape, blueprint: Blueprint, parameters: Mapping[str, float], build: Callable[[], nn.Module]
) -> int:
    """Bytes. What was weighed at this site before is not built on the meta device again; G0 weighs what comes of it."""
    dtype = seed_dtype(slot, shape)
    asked = (blueprint.digest, shape, dtype, *sorted(parameters.items()))
    if asked not in slot.weights:
        if len(slot.weights) >= MOST_WEIGHTS:
            slot.weights.clear()
        slot.weights[asked] = weighed(build, dtype)
    return slot.weights[asked]


def _on_cpu() -> AbstractContextManager[object]:
    """Not where the user's default device is. Such a context takes a part of each call to torch, and isn't entered
    for nothing."""
    return nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu")


def _probed(module: nn.Module, shape: SiteShape, monitor: GradientIsolationMonitor) -> Findings:
    """What one pass over a fixed input shows. Gradients are on: the walk needs delta's graph."""
    parameters = list(module.parameters())
    size = float(sum(p.numel() * p.element_size() for p in parameters))
    non_finite = float(sum(_non_finite(p.detach()) for p in parameters))
    begun = replace(SEEN, fault=0.0, non_finite=non_finite, seed_bytes=size)
    x, h = shape.probe()
    own = next((p.dtype for p in parameters), x.dtype)
    with torch.enable_grad():
        # Under autocast a live input may be narrower.
        delta, violation = monitor.run(delta_of, x.to(own), h.to(own), closely=True)
    if isinstance(delta, BlueprintFault):
        return Findings(replace(begun, fault=1.0), violation or delta.detail)
    fits = delta.shape == h.shape and delta.device == h.device
    strays = float(bool(violation))
    return Findings(
        replace(begun, shape_ok=float(fits), identity=_largest(delta.detach()), stray_leaves=strays), violation
    )


def _placed(module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """There, and of that dtype. Most seeds are built so: `to` takes as long as making a layer, to find that out."""
    tensors = (*module.parameters(), *module.buffers())
    if all(tensor.device == device and tensor.dtype == dtype for tensor in tensors):
        return module
    return module.to(device=device, dtype=dtype)


def _non_finite(values: Tensor) -> int:
    """A sum is finite only where all values are: one pass, where looking at each takes four."""
    return 0 if cmath.isfinite(values.sum().item()) else int((~values.isfinite()).sum())


def _largest(values: Tensor) -> float:
    """abs() of the largest; a new seed's are all 0."""
    return float(values.abs().max()) if values.any() else 0.0


def _layout(module: nn.Module, drawn: Tensor) -> int:
    """`drawn`: the generator's state behind it, another one where a thread of this rank drew from it meanwhile."""
    names = repr([(name, *each.shape) for name, each in module.named_parameters()]).encode()
    return crc32(drawn.numpy().tobytes(), crc32(names))


def parameter_copies(module: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*module.parameters(), *module.buffers())]
