"""Builds a seed's module and gathers what gate G0 judges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from esper.kasmina.evidence import Generators, Value, Witness
from esper.kasmina.gates import SanityEvidence
from esper.kasmina.hooks import HookCensus
from esper.kasmina.monitor import GradientIsolationMonitor, HostTensors
from esper.kasmina.paired import cuda_devices
from esper.kasmina.slot import BlueprintFault, SiteShape, Slot, delta_of, guarded
from esper.kernels.blueprints import Blueprint

UNSEEN = SanityEvidence(0.0, *[None] * 9)


def generator_seed(run_id: str, seed_id: str, generation: int, step: int) -> int:
    """Equal on all ranks, different for every germination."""
    text = f"{run_id}\0{seed_id}\0{generation}\0{step}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def germinate(
    witness: Witness, slot: Slot, blueprint: Blueprint, parameters: Mapping[str, float], rng_seed: int
) -> tuple[nn.Module | None, SanityEvidence, str]:
    """(module, evidence for G0, what the blueprint raised). Global generators and the host's hooks are as before."""
    generators, census = Generators(witness.model), HookCensus(witness.model)
    module: nn.Module | None = None
    evidence, fault = UNSEEN, ""
    if slot.shape is not None:
        module, fault = _built(witness, slot, slot.shape, blueprint, parameters, rng_seed)
        evidence = replace(UNSEEN, seen=1.0, fault=1.0)
        if module is not None:
            evidence, fault = _probed(module, slot.shape, GradientIsolationMonitor(module, HostTensors(witness.model)))
        evidence = replace(evidence, draws=float(generators.moved()), hooks=float(census.added()))
        generators.put_back()
        census.remove_added()
    return module, _agreed(witness, evidence, blueprint), fault


def _built(
    witness: Witness,
    slot: Slot,
    shape: SiteShape,
    blueprint: Blueprint,
    parameters: Mapping[str, float],
    rng_seed: int,
) -> tuple[nn.Module | None, str]:
    own = next((p for p in slot.module.parameters() if p.is_floating_point()), None)
    with torch.random.fork_rng(cuda_devices(witness.model)):
        torch.manual_seed(rng_seed)
        module = guarded(blueprint.build, slot.module, shape.input, shape.output, parameters)
    if isinstance(module, BlueprintFault):
        return None, module.detail
    return module.to(device=shape.device, dtype=shape.input_dtype if own is None else own.dtype), ""


def _probed(module: nn.Module, shape: SiteShape, monitor: GradientIsolationMonitor) -> tuple[SanityEvidence, str]:
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
        return replace(weighed, fault=1.0), violation or delta.detail
    fits = delta.shape == h.shape and delta.device == h.device
    largest = float(delta.detach().abs().max()) if delta.numel() else 0.0
    strays = float(bool(violation))
    return replace(weighed, shape_ok=float(fits), identity=largest, stray_leaves=strays), violation


def _agreed(witness: Witness, evidence: SanityEvidence, blueprint: Blueprint) -> SanityEvidence:
    names = ("seen", "fault", "non_finite", "seed_bytes", "shape_ok", "identity", "draws", "stray_leaves", "hooks")
    short_digest = float(int(blueprint.digest[:8], 16))
    values: list[Value] = [getattr(evidence, name) for name in names]
    *means, digest = witness.mean([*values, short_digest])
    gap = None if digest is None else abs(digest - short_digest)
    # A gap on one rank must be seen by all: each adds its own.
    (gap,) = witness.mean([gap])
    return SanityEvidence(**dict(zip(names, means, strict=True)), digest_gap=gap)


def parameter_copies(module: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*module.parameters(), *module.buffers())]
