"""Builds a seed's module and gathers what gate G0 judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from esper.errors import RefusedError
from esper.kasmina.evidence import Generators, Value, Witness
from esper.kasmina.gates import SanityEvidence
from esper.kasmina.hooks import HookCensus
from esper.kasmina.monitor import GradientIsolationMonitor, HostTensors
from esper.kasmina.paired import cuda_devices
from esper.kasmina.slot import BlueprintFault, Prepared, SiteShape, Slot, delta_of, guarded
from esper.kernels.blueprints import Blueprint
from esper.kernels.kernel import Kernel
from esper.leyline import contracts as pb

UNSEEN = SanityEvidence(0.0, *[None] * 9)


@dataclass(frozen=True, slots=True)
class Findings:
    """What this rank saw of a kernel when it was built."""

    evidence: SanityEvidence
    fault: str = ""  # what the blueprint's code raised, or where it reached beyond its own
    misfit: str = ""  # why the blueprint does not fit the site
    prepared: Prepared | None = None  # for the slot, where there is a module


def built(witness: Witness, slot: Slot, blueprint: Blueprint, parameters: Mapping[str, float], rng_seed: int) -> Kernel:
    """A kernel with its Findings. The global generators and the host's hooks are as before."""
    if slot.shape is None:
        return Kernel(None, Findings(UNSEEN))
    generators, census = Generators(witness.model), HookCensus(witness.model)
    kernel, findings = _built(witness, slot, slot.shape, blueprint, parameters, rng_seed)
    evidence = replace(findings.evidence, draws=float(generators.moved()), hooks=float(census.remove_added()))
    generators.put_back()
    return Kernel(kernel, replace(findings, evidence=evidence))


def agreed(witness: Witness, blueprint: Blueprint, findings: Findings) -> SanityEvidence:
    """Evidence of all ranks, which must all call this. RefusedError on every one where the blueprint misfits on any."""
    names = ("seen", "fault", "non_finite", "seed_bytes", "shape_ok", "identity", "draws", "stray_leaves", "hooks")
    short_digest = float(int(blueprint.digest[:8], 16))
    values: list[Value] = [getattr(findings.evidence, name) for name in names]
    *means, misfits, digest = witness.mean([*values, float(bool(findings.misfit)), short_digest])
    if misfits:
        detail = findings.misfit or f"blueprint {blueprint.blueprint_id} does not fit the site on another rank"
        raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
    gap = None if digest is None else abs(digest - short_digest)
    # A gap on one rank must be seen by all: each adds its own.
    (gap,) = witness.mean([gap])
    return SanityEvidence(**dict(zip(names, means, strict=True)), digest_gap=gap)


def seed_dtype(slot: Slot, shape: SiteShape) -> torch.dtype:
    """That of the site's parameters, or of what flows into it where it has none."""
    for module in slot.module.modules():
        for parameter in module._parameters.values():  # parameters() takes 8 us to its first one, of a graft's 40
            if parameter is not None and parameter.is_floating_point():
                return parameter.dtype
    return shape.input_dtype


def _built(
    witness: Witness,
    slot: Slot,
    shape: SiteShape,
    blueprint: Blueprint,
    parameters: Mapping[str, float],
    rng_seed: int,
) -> tuple[nn.Module | None, Findings]:
    seen = replace(UNSEEN, seen=1.0, fault=1.0)
    misfit = guarded(blueprint.fits, slot.module, shape.input, shape.output, parameters)
    if isinstance(misfit, BlueprintFault):
        return None, Findings(seen, fault=misfit.detail)
    if misfit is not None:
        return None, Findings(seen, misfit=f"{misfit}; site {slot.name!r}")
    build = partial(blueprint.build, slot.module, shape.input, shape.output, parameters)
    dtype = seed_dtype(slot, shape)
    devices = cuda_devices(witness.model)
    with torch.device("cpu"), torch.random.fork_rng(devices):  # not where the user's default device is
        if too_large := _too_large(build, dtype, witness.config.seed_memory_bytes):
            detail = f"blueprint {blueprint.blueprint_id} with {dict(parameters)}: {too_large}; site {slot.name!r}"
            return None, Findings(seen, misfit=detail)
        torch.default_generator.manual_seed(rng_seed)  # torch.manual_seed takes 1 ms where CUDA isn't initialised
        if devices:
            torch.cuda.manual_seed_all(rng_seed)
        module = guarded(build)
    if isinstance(module, BlueprintFault):
        return None, Findings(seen, fault=module.detail)
    module = module.to(device=shape.device, dtype=dtype)
    return module, _probed(module, shape, GradientIsolationMonitor(module, HostTensors(witness.model)))


def _too_large(build: Callable[[], nn.Module], dtype: torch.dtype, limit: int) -> str:
    """Weighed before memory is taken. What can't be built on the meta device is weighed by G0, when it is there."""
    with torch.device("meta"):
        weighed = guarded(build)
    size = 0 if isinstance(weighed, BlueprintFault) else sum(p.numel() for p in weighed.parameters()) * dtype.itemsize
    return f"its parameters would take {size:,} bytes; seed_memory_bytes is {limit:,}" if size > limit else ""


def _probed(module: nn.Module, shape: SiteShape, monitor: GradientIsolationMonitor) -> Findings:
    """What one pass over a fixed input shows. Gradients are on: the walk needs delta's graph."""
    parameters = list(module.parameters())
    size = float(sum(p.numel() * p.element_size() for p in parameters))
    non_finite = float(sum(int((~torch.isfinite(p)).sum()) for p in parameters))
    weighed = replace(UNSEEN, seen=1.0, fault=0.0, non_finite=non_finite, seed_bytes=size)
    x, h = shape.probe()
    own = next((p.dtype for p in parameters), x.dtype)
    with torch.enable_grad():
        # Under autocast a live input may be narrower.
        delta, violation = monitor.run(delta_of, x.to(own), h.to(own), closely=True)
    if isinstance(delta, BlueprintFault):
        return Findings(replace(weighed, fault=1.0), violation or delta.detail)
    fits = delta.shape == h.shape and delta.device == h.device
    largest = float(delta.detach().abs().max()) if delta.numel() else 0.0
    strays = float(bool(violation))
    return Findings(replace(weighed, shape_ok=float(fits), identity=largest, stray_leaves=strays), violation)


def parameter_copies(module: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*module.parameters(), *module.buffers())]
