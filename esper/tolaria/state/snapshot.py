"""Snapshots of a rank's training state, kept in memory and put back by a rollback."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from esper.errors import RefusedError, listed
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import KeptOptimizers, Optimizers
from esper.tolaria.reduce import Trainee
from esper.tolaria.state.bank import Bank, copy_all
from esper.tolaria.state.digest import parameter_digest
from esper.tolaria.state.randomness import Randomness
from esper.tolaria.state.sharded import parameters, shaped, whole

CAPACITY = 2


@dataclass(frozen=True)
class Snapshot:
    """Everything that a rollback to `step` puts back. `live` are the model's own tensors, `kept` their copies.

    The first of them are the parameters that every rank holds whole, in the order of `names`.
    """

    step: int
    names: list[str]
    live: list[torch.Tensor]
    buffers: dict[str, torch.Tensor]  # those of `live`
    kept: list[torch.Tensor]
    optimizers: KeptOptimizers
    randomness: Randomness
    extra: object

    @cached_property
    def digest(self) -> bytes:
        """Of those parameters. Worked out when first asked for: it takes several times as long as the copies."""
        return parameter_digest(zip(self.names, self.kept, strict=False))


class Snapshots:
    """The newest few snapshots of one rank. Knows nothing of the seeds beside the model: they come as `extra`."""

    def __init__(self, model: torch.nn.Module, optimizers: Optimizers) -> None:
        self._model, self._optimizers = model, optimizers
        self._taken: OrderedDict[int, Snapshot] = OrderedDict()
        self._bank = Bank()

    def take(self, step: int, extra: object = None) -> None:
        """Copy the state before `step`; a snapshot of the same step, or else the oldest over capacity, gives way."""
        self._make_room(step)
        known = parameters(self._model)
        buffers, names = shaped(dict(self._model.named_buffers())), [*whole(known)]
        live = [*shaped(known).values(), *buffers.values()]
        kept, optimizers = self._bank.keep(live), self._optimizers.snapshot(self._bank)
        self._taken[step] = Snapshot(step, names, live, buffers, kept, optimizers, Randomness.now(), extra)

    def holds(self, step: int) -> bool:
        return step in self._taken

    def refs(self) -> list[pb.SnapshotRef]:
        return [pb.SnapshotRef(step=step, digest=taken.digest) for step, taken in sorted(self._taken.items())]

    def restore(self, step: int, put_back: Callable[[object], Mapping[str, Trainee]] | None = None) -> object:
        """Put the state before `step` back and return its `extra`.

        `put_back(extra)` restores the seeds beside the model and returns them by id; their optimizers follow by name
        of parameter. The snapshot stays, later ones go: they are of what was undone. Hyperparameters, overrides, leases
        and step counters are not rewound.
        """
        taken = self._find(step)
        copy_all(taken.live, taken.kept)
        self._put_in_place(taken.buffers)
        seeds = put_back(taken.extra) if put_back else {}
        self._optimizers.restore(taken.optimizers, seeds)
        taken.randomness.put_back()
        self.forget_later(step)
        return taken.extra

    def forget_later(self, step: int) -> None:
        """Those of later steps are of what was undone."""
        for later in [each for each in self._taken if each > step]:
            self._let_go(self._taken.pop(later))

    def _put_in_place(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """A module may make its buffers anew: `self.mean = 0.9 * self.mean + ...` leaves the old tensor as it was."""
        modules = dict(self._model.named_modules())
        for name, tensor in buffers.items():
            owner, _, own = name.rpartition(".")
            present = getattr(modules.get(owner), own, None)
            if isinstance(present, torch.Tensor) and present is not tensor:
                setattr(modules[owner], own, tensor.to(present.device, present.dtype))  # it may have been cast, too

    def _find(self, step: int) -> Snapshot:
        if step not in self._taken:
            kept = listed(sorted(self._taken))
            raise RefusedError(pb.ReasonCode.REASON_NO_SNAPSHOT, f"no snapshot of step {step}; kept: {kept}")
        return self._taken[step]

    def _make_room(self, step: int) -> None:
        if step in self._taken:
            self._let_go(self._taken.pop(step))
        elif len(self._taken) >= CAPACITY:
            self._let_go(self._taken.popitem(last=False)[1])

    def _let_go(self, gone: Snapshot) -> None:
        self._bank.give_up([*gone.kept, *gone.optimizers.tensors()])
