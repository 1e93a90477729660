"""Seeds as they were at a snapshot, and how a rollback puts them back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from esper.kasmina.fossil import Fossils
from esper.kasmina.germination.germinate import parameter_copies
from esper.kasmina.seeds.seed import Moment, Seed
from esper.kasmina.slots.slot import Slot
from esper.leyline.lifecycle import ACTIVE_STAGES, DORMANT, FOSSILIZED, TERMINATED

RESTORED = (
    "paired_gain",
    "num_looks",
    "gate_score",
    "paused",
    "losses_seen",
    "loss_before",
    "phase",
    "num_holds",
    "num_retreats",
    "auto",
    "graphs_seen",
    "module",
)

STAYED = ACTIVE_STAGES | {FOSSILIZED, TERMINATED}
"""Where a snapshot may have found a seed that is still alive: in any other stage it had not germinated yet."""


@dataclass(frozen=True, slots=True)
class KeptSeed:
    """One seed: the object itself, its fields, and copies of its tensors."""

    seed: Seed
    fields: Seed
    tensors: list[Tensor]
    alpha: Tensor
    step: int  # the first one after the snapshot


class Kept(dict[str, KeptSeed]):
    """What `put_back` needs, by seed id. What is culled is taken out, as no rollback brings it back."""


def keep(known: Mapping[str, Seed], step: int) -> Kept:
    return Kept(
        (
            seed_id,
            KeptSeed(
                seed,
                replace(seed, meter=copy.deepcopy(seed.meter)),
                parameter_copies(seed.module) if seed.module else [],
                seed.alpha.clone(),
                step,
            ),
        )
        for seed_id, seed in known.items()
    )


def put_back(
    kept: Mapping[str, KeptSeed], known: Mapping[str, Seed], slots: Mapping[str, Slot], fossils: Fossils, now: Moment
) -> None:
    """Undo what happened to seeds since the snapshot, except culls: a rollback brings back no seed that failed."""
    alive = [seed for seed in known.values() if seed.alive]
    there = {seed: then for seed in alive if (then := kept.get(seed.seed_id)) is not None and then.seed is seed}
    for seed in alive:
        if seed not in there or there[seed].fields.stage not in STAYED:
            withdraw(seed, slots[seed.site], fossils, now)
    for seed, then in there.items():
        if then.fields.stage in ACTIVE_STAGES:
            _revive(seed, then, slots[seed.site], fossils, now)
        elif then.fields.stage == FOSSILIZED and seed.stage == TERMINATED:
            seed.record(FOSSILIZED, now, detail="rolled back")


def withdraw(seed: Seed, slot: Slot, fossils: Fossils, now: Moment) -> None:
    fossils.part(seed.seed_id)
    if slot.seed is seed:
        slot.settle(None)
    slot.watched.look()  # else a fossil that it was would be kept from being freed
    seed.module = None
    seed.record(DORMANT, now, detail="rolled back to before it germinated")


def _revive(seed: Seed, then: KeptSeed, slot: Slot, fossils: Fossils, now: Moment) -> None:
    fossils.part(seed.seed_id)
    was, module = then.fields, then.fields.module
    assert module is not None  # it was alive at the snapshot
    for name in RESTORED:
        setattr(seed, name, getattr(was, name))
    seed.schedule = was.schedule.resumed(then.step, now.step)
    seed.complaint, seed.fault = None, was.fault
    seed.meter.fill(was.meter)
    _write(module, then.tensors)
    seed.alpha.copy_(then.alpha)
    seed.record(was.stage, now, detail="rolled back")
    slot.watched.look()  # else the tensors of a fossil that it was would still count as the host's
    slot.settle(seed)


def _write(module: nn.Module, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip((*module.parameters(), *module.buffers()), tensors, strict=True):
            tensor.copy_(value)
    for parameter in module.parameters():
        parameter.grad = None
