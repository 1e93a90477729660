"""Finds sites whose work was done past their slots."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from esper.kasmina.slots.slot import Slot
from esper.kernels.split import own_part


class Bypasses:
    """Sites that learned although no slot fired there.

    That a slot did not fire proves nothing: a step may leave out a layer, or the whole model. A gradient in parameters
    that only this site has proves that its module ran, and that compiled code or a fast path went past the hook; but
    only where they had none at the last look. Else it may be an older one, as of a script that accumulates; and among
    several ranks it may be what another one found, whose batch went through a layer that this one's left out. There it
    makes the site suspect, and the proof is a backward of this rank that writes to its parameters. So does the first
    step of a seed: its backward may be of a forward that ran before the seed came, as of a GAN's generator. A gradient
    that is of the weights alone proves nothing: a penalty on them all (L1, L2) gives it to layers that were left out.
    """

    def __init__(self, host: nn.Module, *, is_alone: bool) -> None:
        self._host, self._is_alone = host, is_alone
        self._bare: set[str] = set()  # sites whose own parameters held no gradient when they were last looked at
        self._suspects: dict[str, Suspect] = {}

    def begin_step(self, slots: Iterable[Slot]) -> None:
        """Look at those that have just woken. What was written by now is of steps in which nobody looked."""
        for slot in slots:
            if slot.resting:
                self._forget(slot.name)
            elif slot.woken:
                slot.woken = False
                self._look_at_woken(slot)
        self._let_proofs_lapse()

    def found(self, slots: Collection[Slot]) -> list[str]:
        """Since the last call; call after backward, before zero_grad."""
        awake = [slot for slot in slots if not slot.resting]
        silent = [slot for slot in awake if slot.hooked and not slot.fired]
        for slot in awake:
            slot.fired = False
        own = {slot.name: _own(self._host, slot.module) for slot in silent}
        learned = {name: parameters for name, parameters in own.items() if any(map(_has_learned, parameters))}
        gone_past = [name for name, parameters in learned.items() if self._is_proven(name, parameters)]
        self._bare = own.keys() - learned.keys()
        self._let_proofs_lapse()
        return gone_past

    def release(self) -> None:
        """Leave the parameters without a hook."""
        for name in [*self._suspects]:
            self._forget(name)

    def _look_at_woken(self, slot: Slot) -> None:
        self._forget(slot.name)
        if slot.seed is None and not any(map(_has_learned, slot.module.parameters())):
            self._bare.add(slot.name)

    def _is_proven(self, name: str, parameters: Iterable[nn.Parameter]) -> bool:
        if self._is_alone and name in self._bare:
            return True
        if name not in self._suspects:
            self._suspects[name] = Suspect(parameters)
        return self._suspects[name].is_written

    def _let_proofs_lapse(self) -> None:
        for suspect in self._suspects.values():
            suspect.is_written = False

    def _forget(self, name: str) -> None:
        self._bare.discard(name)
        if name in self._suspects:
            self._suspects.pop(name).release()


class Suspect:
    """Notes whether a backward of this rank writes to any of these parameters."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.is_written = False
        hooks = [each.register_post_accumulate_grad_hook(self._note) for each in parameters if each.requires_grad]  # type: ignore[no-untyped-call]
        self._hooks: list[RemovableHandle] = hooks

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note(self, _parameter: Tensor) -> None:
        self.is_written = True


def _own(host: nn.Module, site: nn.Module) -> list[nn.Parameter]:
    """Parameters that no module outside of the site has."""
    inside = {id(module) for module in site.modules()}
    others = {id(p) for module in host.modules() if id(module) not in inside for p in module.parameters(recurse=False)}
    return [parameter for parameter in site.parameters() if id(parameter) not in others]


def _has_learned(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any()) and not _is_penalty(parameter)


def _is_penalty(parameter: nn.Parameter) -> bool:
    """Whether more than half of a gradient is a mixture of the weights and of their signs.

    Not the whole, as the optimizer has stepped since. Of what a loss gives to n weights, about two n-ths are such.
    """
    weights, gradient = own_part(parameter).detach(), own_part(cast(Tensor, parameter.grad))
    if not weights.is_floating_point() or gradient.layout != torch.strided:
        return False
    axes = [functional.normalize(each.float().flatten(), dim=0) for each in (weights, weights.sign())]
    along, across = (torch.dot(gradient.float().flatten(), axis) for axis in axes)
    apart = torch.dot(*axes)
    across = (across - apart * along) / (1 - apart**2).clamp_min(1e-6).sqrt()
    return bool(along**2 + across**2 >= 0.5 * gradient.float().square().sum())


def show_hooks_to_compiler() -> None:
    """Make compiled code guard on hooks, so that a slot on one of several equal blocks isn't skipped.

    What was compiled without these guards is thrown away, and compiled again when it is next called.
    """
    dynamo = torch._dynamo
    if dynamo.config.skip_nnmodule_hook_guards:
        dynamo.config.skip_nnmodule_hook_guards = False
        if dynamo.utils.counters["stats"]["unique_graphs"]:
            dynamo.reset()
