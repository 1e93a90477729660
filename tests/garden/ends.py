"""What is left when a run is closed: the bare model with its fossils, and nothing of any other seed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from esper.kasmina.slots.slot import Fossil
from esper.kernels.split import gathers
from esper.session import Session
from tests.garden.habits import Users
from tests.garden.hosts import first_tensor
from tests.garden.loops import Loop
from tests.garden.newest import Gain

OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")

Require = Callable[[object, str], None]


def hooks(loop: Loop) -> Iterator[object]:
    """All that hang on the model, its parameters and its optimizer, but for a fossil's one and the script's."""
    owners: list[tuple[object, tuple[str, ...]]] = [(module, OF_MODULES) for module in loop.host.modules()]
    owners += [(parameter, OF_TENSORS) for parameter in loop.host.parameters()]
    owners.append((loop.optimizer, OF_OPTIMIZERS))
    for owner, names in owners:
        for name in names:
            yield from (
                each
                for each in (getattr(owner, name, None) or {}).values()
                if not (isinstance(each, Fossil | Users | Gain) or gathers(each))
            )


def answer(loop: Loop) -> Tensor:
    """The model's output in evaluation, which draws nothing."""
    loop.host.eval()
    with torch.no_grad():
        output = first_tensor(loop.host(loop.batch(-77))).double()
    loop.host.train()
    return output


def close(loop: Loop, run: Session, require: Require) -> None:
    """Close the run and look at what it leaves."""
    for seed_id in run.executor.seeds:
        run.executor.pause(seed_id, True)  # paused it is the identity
    masked, before = bool(run.pruning.masks.held[0]), answer(loop)
    run.close()
    after = answer(loop)
    if masked:  # a masked channel is 0 whatever it is made from; where its weights are 0 it need be no number
        before = torch.where(after.isnan(), after, before)
    close = torch.allclose(before, after, rtol=1e-4, atol=1e-5, equal_nan=True)
    require(close, f"the closed model is off by {float((before - after).abs().max()) if before.numel() else 0}")
    require(not [*hooks(loop)], f"hooks are left: {[*hooks(loop)]}")
    placed = [each for group in loop.optimizer.param_groups for each in group["params"]]
    own = {id(each) for each in loop.host.parameters()}
    require(all(id(each) in own for each in placed), "the optimizer steps what the model does not have")
    require(loop.optimizer.state.keys() <= set(placed), "the optimizer remembers what it does not step")


class Gone:
    """Modules of seeds, held by nothing here."""

    def __init__(self) -> None:
        self._modules: dict[str, weakref.ref[nn.Module]] = {}

    def note(self, run: Session) -> None:
        """Those that live now."""
        for seed in run.executor.seeds.values():
            if seed.module is not None:
                self._modules[f"{seed.seed_id} {seed.generation} of {seed.blueprint_id} at {seed.site}"] = weakref.ref(
                    seed.module
                )

    def left(self, keep: Iterator[nn.Module]) -> list[str]:
        """Those that something still holds, though they are not to be kept."""
        gc.collect()
        kept = {id(each) for each in keep}
        found = [(name, ref()) for name, ref in self._modules.items()]
        return [name for name, module in found if module is not None and id(module) not in kept]
