"""Where a seed joins the host: a forward hook on one of the host's modules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch.utils.hooks import RemovableHandle

from esper.kasmina.config import KasminaConfig
from esper.kasmina.isolation.foreign_code import BlueprintFault, delta_of, regional_delta
from esper.kasmina.isolation.functions import add, blend, mapped, measured, shadow, transformed, weighed_apart
from esper.kasmina.isolation.monitor import GradientIsolationMonitor, HostTensors, shared
from esper.kasmina.isolation.norm_cache import NormCache
from esper.kasmina.seeds.seed import Seed
from esper.kasmina.slots.outputs import is_joinable, joinable, widened, with_tensor
from esper.kernels.regional import Forward, Regions, in_one_graph
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDED_STAGES, SHADOWING, TRAINING


@dataclass(frozen=True, slots=True)
class SiteShape:
    """What flowed through a site when it was first seen."""

    input: torch.Size
    output: torch.Size
    input_dtype: torch.dtype
    dtype: torch.dtype
    device: torch.device

    def probe(self) -> tuple[Tensor, Tensor]:
        """A fixed input and output of this shape, drawn from no generator."""
        return (
            torch.linspace(-1, 1, self.input.numel(), device=self.device).reshape(self.input).to(self.input_dtype),
            torch.linspace(-1, 1, self.output.numel(), device=self.device).reshape(self.output).to(self.dtype),
        )


class Prepared(NamedTuple):
    """What watches a seed's module at its site, and its forward as compiled; None: it runs in eager mode."""

    monitor: GradientIsolationMonitor
    region: Forward | None


class Slot:
    """A site of the host and the one seed in it. Once it was seen, it hangs on the host only while a seed is there.

    Each call of the site's module is joined by itself, with the one seed: a module used twice in a forward has it
    twice, as its own weights. What a call measured is counted in its backward, so that a forward which checkpointing
    runs again isn't counted again; it gives the same value, as nothing that it depends on moves between two steps.
    """

    def __init__(self, name: str, module: nn.Module, config: KasminaConfig) -> None:
        self.name, self.module, self.config = name, module, config
        self.seed: Seed | None = None
        self.shape: SiteShape | None = None
        self.generation = 0
        self.weights: dict[Hashable, int] = {}  # bytes of what blueprints would build here, by all that they depend on
        self.watched = HostTensors(module)
        self.norm_cache = NormCache()  # the same for all slots of a module
        self.monitor: GradientIsolationMonitor | None = None
        self.regions: Regions | None = None
        self.region: Forward | None = None  # the seed's forward, compiled; None: it runs in eager mode
        self.walk_due = False  # the next call gets a close look
        self.step = 0
        self._violated_at = self._refused_at = -1  # steps
        self.fired = False  # only ever set by the hook: a count would be a value that compiled code guards on
        self.reused: bool | None = None  # the host changes the site's input in place, later in the same forward; None:
        # that is not known, as in a process that resumes, or that has only seen what inference_mode made
        self.unbroken = False  # the host is compiled with fullgraph=True: it would raise over a seed
        self._first_input: tuple[Tensor, int] | None = None
        self.forced: float | None = None  # measuring: delta counts this much, and nothing is noted
        self.resting = False  # no hook hangs on the module; there is nothing to do at a step
        self.woken = True  # a hook hangs there since the last look for what goes past it
        self._handle: RemovableHandle | None = None
        self._ahead: set[int] = set()  # the module's hooks that came before this one's, where the slot rests
        self.attach()

    @property
    def hooked(self) -> bool:
        return self._handle is not None and self._handle.id in self.module._forward_hooks

    def attach(self) -> None:
        """Behind everything else that hangs on the module."""
        self.detach()
        self.woken = True
        self._handle = self.module.register_forward_hook(Hook(self), with_kwargs=True)

    def detach(self) -> None:
        self.resting = False
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def rest(self) -> None:
        """Without a seed, take the hook off: calling one that does nothing is 2 to 4 us of a step, on a CPU."""
        if self.seed is None and self.shape is not None and self._handle is not None and self.hooked:
            hooks = list(self.module._forward_hooks)
            self._ahead = set(hooks[: hooks.index(self._handle.id)])
            self._handle.remove()
            self.resting, self.fired = True, False

    def wake(self) -> None:
        """Hang on the module again, at the old place among its hooks: before what was hung behind them since."""
        self.resting = False
        if self._handle is None or self.hooked:
            return
        self.woken = True
        hooks, own = self.module._forward_hooks, self._handle.id
        behind = self._behind(own)
        hooks[own] = Hook(self)
        self.module._forward_hooks_with_kwargs[own] = True
        for key in behind:
            hooks[key] = hooks.pop(key)

    def _behind(self, own: int) -> list[int]:
        """The module's hooks from the old place on. Keys ascend: one before a lower key was put before all others."""
        hooks, behind = self.module._forward_hooks, list[int]()
        for key in reversed(hooks):
            precedes = getattr(hooks[key], "precedes_seeds", False)  # as gates of masks do
            if precedes or key < own or key in self._ahead or (behind and key > behind[-1]):
                break
            behind.append(key)
        return behind[::-1]

    def settle(self, seed: Seed | None, prepared: Prepared | None = None) -> None:
        """Let the seed in, or with None out; `prepared` for its module, here, where that was done in advance."""
        self.look_back()
        if self.seed is not None:
            self.seed.seen = []  # they may have to be given back now
        self.seed, self.walk_due = seed, True
        if seed is not None:
            self.wake()
            seed.look()
        module = seed.module if seed is not None else None
        if module is None:
            self.region = self.monitor = None
            return
        found = prepared or self.prepare(module)
        self.region, self.monitor = found.region, found.monitor

    def prepare(self, module: nn.Module) -> Prepared:
        """All that a seed's module needs to be run here."""
        region = None if self.regions is None else self.regions.of(module)
        return Prepared(GradientIsolationMonitor(module, self.watched), region)

    def look_at_first(self, x: Tensor, h: Tensor) -> None:
        """Note what flows through the site; this alone, and the look that finds nothing to do, is ever compiled."""
        compiles = torch.compiler.is_compiling()
        if 0 in h.shape or h.is_meta or (torch.compiler.is_exporting() if compiles else mapped()):
            return  # what is empty, or only looked through, says nothing of what can be grafted
        self.shape = SiteShape(x.shape, h.shape, x.dtype, h.dtype, h.device)
        if compiles:
            self.reused = True  # it may be: what compiled code does later isn't seen
            self.unbroken = in_one_graph()
        else:
            self._look_at_input(x)

    def joined(self, x: Tensor, h: Tensor) -> Tensor | None:
        """The value that takes h's place; None where h stays."""
        if self.shape is None:
            self.look_at_first(x, h)
        seed = self.seed
        if seed is None or seed.module is None or seed.paused or self._refused(seed):
            return None
        if self.forced is not None:
            return self._measured(seed, seed.module, x, h, self.forced)
        if transformed():
            return self._added(seed, seed.module, x, h) if seed.stage in BLENDED_STAGES else None
        if seed.stage == TRAINING:
            return self._shadowed(seed, seed.module, x, h) if torch.is_grad_enabled() else None
        return self._blended(seed, seed.module, x, h) if seed.stage in BLENDED_STAGES else None

    def _look_at_input(self, x: Tensor) -> None:
        if self._first_input is None and not x.is_inference():
            self._first_input = x, x._version

    def look_back(self) -> None:
        """Once the forward is over in which an input was first seen: see whether it was changed in place.

        A seed that shared such an input would make the host's backward raise, which goes through without the seed.
        """
        if self._first_input is not None:
            x, version = self._first_input
            self.reused, self._first_input = x._version != version, None

    def _measured(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor, alpha: float) -> Tensor | None:
        delta = self._delta(seed, module, x, h) if alpha else None
        return None if delta is None else h + alpha * delta

    def _shadowed(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | None:
        delta = self._delta(seed, module, x, h)
        if delta is None:
            return None
        call = measured(seed.meter.row, h, delta, self.norm_cache.norms(h))
        value = shadow(h, delta, seed.meter.ledger, call)
        self.norm_cache.on(value, call.of_host)
        return value

    def _blended(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | None:
        delta = self._delta(seed, module, x, h)
        if delta is None:
            return None
        ledger, call = seed.meter.ledger, measured(seed.meter.row, h, delta, self.norm_cache.norms(h))
        if not torch.is_grad_enabled():
            return add(h, delta, seed.alpha, ledger.limit, call)
        value, norms = blend(h, delta, seed.alpha, ledger, call, shadowing=seed.stage == SHADOWING)
        self.norm_cache.on(value, norms)
        return value

    def _added(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | None:
        """Below a transform the seed takes part, but learns nothing and is not measured."""
        with torch.no_grad():
            delta = self._delta(seed, module, x, h)
        return None if delta is None else weighed_apart(h, delta, seed.alpha, seed.meter.ledger.limit)

    def _delta(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | None:
        if module.training != self.module.training:
            module.train(self.module.training)
        delta = self._watched_delta(seed, module, *widened(module, *self._own_copies(x, h)))
        if delta is None:
            return None
        if isinstance(delta, BlueprintFault):
            self._refuse(seed, delta.detail + self._otherwise_shaped(h))
            return None
        if delta.shape != h.shape or delta.device != h.device or not delta.is_floating_point():
            seed.meter.num_mismatches += 1
            found = f"{delta.dtype} {tuple(delta.shape)} on {delta.device}"
            self._refuse(seed, f"delta is {found}; expected {h.dtype} {tuple(h.shape)} on {h.device}")
            return None
        return delta if delta.dtype == h.dtype else delta.to(h.dtype)

    def _otherwise_shaped(self, h: Tensor) -> str:
        """Where a module without a width of its own, as an activation, is shared by calls of several widths."""
        seen = None if self.shape is None else self.shape.output
        if seen is None or seen[1:] == h.shape[1:]:
            return ""
        return f"; the seed is built for the site's {[*seen]}, and a call of it gave {[*h.shape]}"

    def _own_copies(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Detached and contiguous; copied where the host may write to them before the seed's backward has run.

        What the host writes to in place of h is the slot's value, never h itself, unless the two share their memory.
        Copied, too, where a write of the seed's own would not be seen: tensors of inference_mode have no versions.
        """
        if transformed() or x.is_inference() or h.is_inference():
            return x.detach().clone(), h.detach().clone()
        if self.reused is None:
            self._look_at_input(x)
        same, may_change = shared(x, h), self.reused is not False
        held, output = x.detach().contiguous(), h.detach().contiguous()
        return held.clone() if same or may_change else held, output.clone() if same else output

    def _watched_delta(self, seed: Seed, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | BlueprintFault | None:
        """None where the seed reached beyond its own: then it has no part in this call."""
        assert self.monitor is not None  # made with the seed's module
        closely = self.walk_due and not transformed()  # below one, tensors don't say where their memory is
        call = delta_of if self.region is None else partial(regional_delta, self.region)
        delta, violation = self.monitor.run(call, x, h, closely=closely)
        if violation or closely:
            self._judge(seed, violation, closely and torch.is_grad_enabled())
        return None if violation else delta

    def _judge(self, seed: Seed, violation: str, closely: bool) -> None:
        """Count a violation, once a step; after one each call gets a close look, until the breaker opens."""
        if violation:
            self.walk_due = True
            if self.step != self._violated_at:
                self._violated_at = self.step
                seed.violations += 1
                seed.violation = violation
                seed.breaker.fail()
        elif closely:
            self.walk_due = self.step == self._violated_at
            seed.breaker.succeed()

    def _refuse(self, seed: Seed, detail: str) -> None:
        self._refused_at = self.step if not seed.fault else self._refused_at
        seed.fault = detail
        seed.complain(pb.ReasonCode.REASON_BREAKER_OPEN, detail)

    def _refused(self, seed: Seed) -> bool:
        """From the step after its fault on: a forward that checkpointing runs again must do what the first one did."""
        return bool(seed.fault) and self.step != self._refused_at


class Hook:
    """What torch calls. A copy of it does nothing, deep or pickled: averaged and saved copies of the host stay its."""

    def __init__(self, slot: Slot | None) -> None:
        self.slot = slot

    def __reduce__(self) -> tuple[type[Hook], tuple[None]]:
        return Hook, (None,)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        slot = self.slot
        if slot is None:
            return None
        slot.fired = True
        if slot.seed is not None:
            # In tracing the first of these is a constant; where no compiler looks on, leaving its sight takes time.
            compiled = torch.compiler.is_compiling() or get_eval_frame_callback() is not None
            if torch.compiler.is_exporting() if compiled else torch._C._is_tracing():
                return None  # what is written down is the host alone, as in a copy
            return (beside_the_graph if compiled else replaced)(output, args, kwargs, slot.joined)
        if slot.shape is not None:
            return None  # dormant: the one path that every step of every site takes
        return replaced(output, args, kwargs, slot.joined)


class Fossil:
    """The hook that adds a fossil. It holds only the child's path, so that a copy of the host computes it too."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        seed = module.get_submodule(self.path)
        return replaced(output, args, kwargs, lambda x, h: h + seed(*widened(seed, x, h)).to(h.dtype))


def replaced(output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], join: Any) -> Any:
    """`output` with its tensor h replaced by join(x, h); None where it stays. x is h itself where the site has none."""
    if type(output) is Tensor and args and type(args[0]) is Tensor and is_joinable(args[0]) and is_joinable(output):
        return join(args[0], output)  # most sites: no need to look further
    found = joinable(output)
    if found is None:
        return None
    path, h = found
    given = joinable((*args, *kwargs.values()))
    value = join(h if given is None else given[1], h)
    return None if value is None else with_tensor(output, path, value)


# A seed in a compiled host is a break in its graph, on purpose: the host's code is compiled once for it, whatever the
# seed's stage and alpha become, and the seed is watched at each call. Its own forward may be compiled by region.
beside_the_graph: Callable[..., Any] = torch._dynamo.disable(replaced)  # type: ignore[no-untyped-call]
