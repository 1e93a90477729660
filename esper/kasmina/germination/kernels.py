"""Makes kernels for the slots, from blueprints, and holds those that were asked for in advance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from esper.errors import RefusedError
from esper.kasmina.gates.evidence import EvidenceCollector, Generators
from esper.kasmina.germination.germinate import UNSEEN, Findings, built, seed_dtype
from esper.kasmina.isolation.foreign_code import BlueprintFault, guarded
from esper.kasmina.slots.module_replacement import misfit_of
from esper.kasmina.slots.slot import SiteShape, Slot
from esper.kernels.blueprints import Blueprint, find
from esper.kernels.kernel import Kernel, KernelId
from esper.kernels.pools import Pool
from esper.kernels.regional import Regions
from esper.leyline import contracts as pb

TTL_S = 3600.0  # of the memory pools document (02.2)


@dataclass
class Kernels:
    """One kernel per germination of a slot. A pooled one has the same bits as one that is built on the spot.

    So its parameters are drawn from the run, the site and the generation: neither from the seed's id nor from the
    step, which are not known in advance. Ranks may differ in what they have pooled; it can't be told from the weights.
    """

    run_id: str
    collector: EvidenceCollector
    slots: Mapping[str, Slot]
    blueprints: Mapping[str, Blueprint]
    pool: Pool[KernelId, Kernel] = field(init=False)
    regions: Regions | None = field(init=False)

    def __post_init__(self) -> None:
        backend = self.collector.config.torch_compile_backend
        self.regions = Regions(backend) if backend else None
        for slot in self.slots.values():
            slot.regions = self.regions
        max_bytes = self.collector.config.cache_size_mb * 2**20
        self.pool = Pool(max_bytes, TTL_S, Kernel.get_memory_size, self.collector.clock)

    def prepare(self, site: str, blueprint_id: str, given: Mapping[str, float]) -> None:
        """Build the kernel that the next germination there will want, and keep it; RefusedError as that would raise."""
        kernel_id = self.next_id(site, blueprint_id, given)
        kernel = self.load_kernel(kernel_id)
        module_of(kernel)
        self.cache_kernel(kernel_id, kernel)

    def next_id(self, site: str, blueprint_id: str, given: Mapping[str, float]) -> KernelId:
        """Of the kernel that the next germination there will want; RefusedError where a name or value is unknown."""
        slot, parameters = self.slot(site), find(self.blueprints, blueprint_id).resolve(given)
        return KernelId.of(site, blueprint_id, parameters, slot.generation + 1)

    def slot(self, site: str) -> Slot:
        if site not in self.slots:
            detail = f"no site is called {site!r}; sites: {', '.join(self.slots)}"
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_SITE, detail)
        return self.slots[site]

    def load_kernel(self, kernel_artifact_id: KernelId) -> Kernel:
        """From the pool, which then no longer has it, or built and looked over now.

        At a site whose module was replaced there is none, and that is a finding: all ranks are to hear of it.
        """
        if gone := misfit_of(self.collector.model, self.slot(kernel_artifact_id.site)):
            return Kernel(None, Findings(UNSEEN, misfit=gone))
        kernel = self.pool.take(kernel_artifact_id)
        made_for = self._made_for(kernel_artifact_id)
        if kernel is None or kernel.made_for != made_for:
            kernel = replace(self._built(kernel_artifact_id), made_for=made_for)
        return kernel

    def execute_kernel(self, kernel: Kernel, input_tensor: Tensor, output: Tensor) -> Tensor:
        """delta of a site's input and output."""
        delta: Tensor = module_of(kernel)(input_tensor, output)
        return delta

    def cache_kernel(self, kernel_artifact_id: KernelId, kernel: Kernel) -> None:
        """Keep it for its germination. One that was not built, or that there is no room for, is let go."""
        if kernel.module is not None and len(self.pool) < self.collector.config.kernel_cache_size:
            self.pool.give(kernel_artifact_id, kernel)

    def evict_kernel(self, kernel_artifact_id: KernelId) -> bool:
        """Whether it was there."""
        return self.pool.take(kernel_artifact_id) is not None

    def _built(self, kernel_id: KernelId) -> Kernel:
        slot, blueprint = self.slot(kernel_id.site), find(self.blueprints, kernel_id.blueprint_id)
        kernel = built(self.collector, slot, blueprint, dict(kernel_id.parameters), self._rng_seed(kernel_id))
        if kernel.module is None or slot.shape is None:
            return kernel
        assert isinstance(kernel.findings, Findings)
        if fault := warmed(slot, kernel.module, slot.shape):
            return Kernel(None, replace(kernel.findings, misfit=f"{fault}; site {slot.name!r}"))
        return replace(kernel, findings=replace(kernel.findings, prepared=slot.prepare(kernel.module)))

    def _rng_seed(self, kernel_id: KernelId) -> int:
        """Equal on all ranks, different for every germination."""
        text = f"{self.run_id}\0{kernel_id.site}\0{kernel_id.generation}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def _made_for(self, kernel_id: KernelId) -> tuple[object, ...]:
        """All else that a kernel depends on."""
        slot, digest = self.slots[kernel_id.site], self.blueprints[kernel_id.blueprint_id].digest
        return (digest, slot.shape, None if slot.shape is None else seed_dtype(slot, slot.shape))


def warmed(slot: Slot, module: nn.Module, shape: SiteShape) -> str:
    """Compile a seed's module, where seeds are, before a step needs it; why the backend can't, or "".

    What it can't compile is to be refused, and never run in eager mode. What it draws and its buffers count in that is
    undone: ranks may compile before other steps, and a run that resumes does it once more.
    """
    if slot.regions is None:
        return ""
    dtype = seed_dtype(slot, shape)
    x, h = (two_samples(tensor).to(dtype) for tensor in shape.probe())
    owners = [(each, name, buffer) for each in module.modules() for name, buffer in each.named_buffers(recurse=False)]
    generators, kept = Generators(module), [buffer.detach().clone() for _, _, buffer in owners]
    fault = guarded(slot.regions.warm, module, x, h)
    with torch.no_grad():
        for (owner, name, buffer), before in zip(owners, kept, strict=True):
            setattr(owner, name, buffer.copy_(before))  # it may have set another one there, of another shape
    generators.put_back()
    if not isinstance(fault, BlueprintFault):
        return ""
    why = " ".join(fault.detail.splitlines()[:2])  # whose error it is, and what it says; then come torch's hints
    return f"{slot.regions.backend} can't compile it ({why})"


def two_samples(tensor: Tensor) -> Tensor:
    """A batch of one would be compiled for one alone."""
    return tensor.expand(2, *tensor.shape[1:]) if tensor.ndim and tensor.shape[0] == 1 else tensor


def module_of(kernel: Kernel) -> nn.Module:
    """Raises RefusedError, with what went wrong, where it could not be built."""
    if kernel.module is None:
        assert isinstance(kernel.findings, Findings)  # of all that are made here
        detail = kernel.findings.misfit or kernel.findings.fault or "the site has carried no batch that takes a seed"
        raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
    return kernel.module
