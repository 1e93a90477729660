"""The whole training state of a rank, seeds included, taken and put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from esper.leyline import contracts as pb
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.reduce import Trainee
from esper.tolaria.state.snapshot import Snapshots


class SeedKeeper(Protocol):
    """Seeds that can be kept and put back; a restore leaves a record in their history."""

    @property
    def seeds(self) -> Mapping[str, Trainee]: ...
    def snapshot(self) -> object: ...
    def restore(self, kept: object, step: int) -> None: ...


class PruningKeeper(Protocol):
    """Masks that can be kept and put back; they act on the model's own weights, which go before them."""

    def snapshot(self) -> object: ...
    def restore(self, kept: object) -> None: ...


class DeepStates(Protocol):
    """States that lie on disk, and the record there of what was undone."""

    def refs(self) -> list[pb.SnapshotRef]: ...
    def undo(self, to_step: int, step: int) -> None: ...
    def restore(self, checkpoint_step: int, step: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Beside:
    seeds: object
    fossils: list[torch.nn.Parameter]
    pruning: object


class TrainingStates:
    """Joins the snapshots of the model with those of its seeds, and both with checkpoints. Knows no commands."""

    def __init__(
        self,
        snapshots: Snapshots,
        executor: SeedKeeper,
        fossils: FossilGradients,
        pruning: PruningKeeper,
        deep: DeepStates | None = None,
    ) -> None:
        self._snapshots, self._executor, self._fossils, self._pruning = snapshots, executor, fossils, pruning
        self.deep = deep

    def take(self, step: int) -> None:
        """Keep the state before `step`."""
        beside = _Beside(self._executor.snapshot(), self._fossils.adopted, self._pruning.snapshot())
        self._snapshots.take(step, beside)

    def restore(self, snapshot_step: int, step: int) -> None:
        """Put back the state of `snapshot_step`; the run stands before `step` and goes on counting from there.

        From memory where it is still held there, else from disk. RefusedError, with nothing changed, where it is not.
        """
        if self.deep is not None and not self._snapshots.holds(snapshot_step):
            self.deep.restore(snapshot_step, step)
            self._snapshots.forget_later(snapshot_step)
            return
        if self.deep is not None:
            self.deep.undo(snapshot_step, step)

        def put_back(extra: object) -> Mapping[str, Trainee]:
            assert isinstance(extra, _Beside)  # what take() gave
            self._executor.restore(extra.seeds, step)
            self._fossils.release()
            self._fossils.adopt(extra.fossils)
            self._pruning.restore(extra.pruning)
            return self._executor.seeds

        self._snapshots.restore(snapshot_step, put_back)

    def refs(self) -> list[pb.SnapshotRef]:
        """The snapshots and checkpoints held, with the digests of their parameters; a step once."""
        deep = [] if self.deep is None else self.deep.refs()
        found = {ref.step: ref for ref in (*deep, *self._snapshots.refs())}
        return [ref for _, ref in sorted(found.items())]
