"""Finds sites whose work was done past their slots."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from esper.kasmina.slot import Slot


def bypassed(host: nn.Module, slots: Collection[Slot]) -> list[str]:
    """Sites that learned since the last call although no slot fired there; call after backward, before zero_grad.

    That a slot did not fire proves nothing: a step may leave out a layer, or the whole model. A gradient in parameters
    that only this site has proves that its module ran, and that compiled code or a fast path went past the hook.
    """
    awake = [slot for slot in slots if not slot.resting]
    silent = [slot for slot in awake if slot.hooked and not slot.fired]
    for slot in awake:
        slot.fired = False
    return [slot.name for slot in silent if _learned(host, slot.module)]


def _learned(host: nn.Module, site: nn.Module) -> bool:
    inside = {id(module) for module in site.modules()}
    others = {id(p) for module in host.modules() if id(module) not in inside for p in module.parameters(recurse=False)}
    gradients = [p.grad for p in site.parameters() if p.grad is not None and id(p) not in others]
    return any(bool(gradient.any()) for gradient in gradients)


def show_hooks_to_compiler() -> None:
    """Make compiled code guard on hooks, so that a slot on one of several equal blocks isn't skipped.

    What was compiled without these guards is thrown away, and compiled again when it is next called.
    """
    dynamo = torch._dynamo
    if dynamo.config.skip_nnmodule_hook_guards:
        dynamo.config.skip_nnmodule_hook_guards = False
        if dynamo.utils.counters["stats"]["unique_graphs"]:
            dynamo.reset()
