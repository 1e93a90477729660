"""What one of several trainers does: in its first life, in a later one, and when it is run again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from esper.session.replay_link import ReplayLink
from tests.garden import marks
from tests.garden.hosts import each_loss
from tests.garden.odd import ALL
from tests.grove.plan import AS_ONE
from tests.grove.script import Script as OfTwo
from tests.replayed.pair_plan import PairPlan
from tests.replayed.script import Kept, Live, Own, Script, join, looped, train

PATIENCE_S = 60.0
GATHERING = ("all_gather_single", "reduce_scatter_single")  # which fully_shard calls


class Saved(MutableMapping[int, Own]):
    """By step, in files: a process that is killed leaves them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __setitem__(self, step: int, own: Own) -> None:
        (self._folder / str(step)).write_bytes(pickle.dumps(own))

    def __getitem__(self, step: int) -> Own:
        try:
            own: Own = pickle.loads((self._folder / str(step)).read_bytes())
        except FileNotFoundError as error:
            raise KeyError(step) from error
        return own

    def __delitem__(self, step: int) -> None:
        (self._folder / str(step)).unlink()

    def __iter__(self) -> Iterator[int]:
        return (int(each.name) for each in self._folder.iterdir())

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Trainee:
    """One of them, with what it reads and writes. `goes_away` is called where it is about to wait for the others."""

    plan: PairPlan
    number: int
    folder: Path
    keyring: Path
    run_id: str
    goes_away: Callable[[], object] = lambda: None

    @property
    def name(self) -> str:
        return f"worker-{self.number}"

    def train(self, link: Live | ReplayLink, checkpoints: Path, kept: Kept) -> Session:
        """To the end of the run, or of the plan of a replay."""
        is_ddp = self.plan.shared is not None and self.plan.shared.sharing.is_ddp
        began = self.goes_away if is_ddp else lambda: None  # DDP itself says nothing of where it waits
        return train(self._make, link, lambda script: self._join(script, link, checkpoints), kept, self.plan, began)

    def meet(self, place: Path) -> None:
        """The other ranks, where they are a group."""
        if self.plan.shared is None:
            return
        patience, num = timedelta(seconds=4 * PATIENCE_S), self.plan.num
        dist.init_process_group("gloo", f"file://{place}", rank=self.number, world_size=num, timeout=patience)
        for name in ("all_reduce", "new_group", *(GATHERING if self.plan.shared.shards is not None else ())):
            setattr(dist, name, self._told(getattr(dist, name)))
        DTensor.full_tensor = self._told(DTensor.full_tensor)  # type: ignore[method-assign]

    def _told(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*given: Any, **options: Any) -> Any:
            self.goes_away()
            return call(*given, **options)

        return told

    def _make(self) -> Script:
        shared = self.plan.shared
        if shared is None:
            return looped(self.plan)()
        marks.seed_all(self.plan.seed + (0 if shared.sharing.way == AS_ONE else self.number))
        script = OfTwo(shared, self.number)
        if shared.sharing.is_ddp:
            script.wrap = self._told(script.wrap)  # type: ignore[method-assign]
            if shared.manner.evaluates == "both":
                script._evaluate = self._told(script._evaluate)  # type: ignore[method-assign]
        if shared.sharing.way != "ddp after":
            script.wrap()
        return script

    def _join(self, script: Script, link: Live | ReplayLink, checkpoints: Path) -> Session:
        shared, plan = self.plan.shared, self.plan
        if shared is None or not isinstance(script, OfTwo):
            return join(plan, script, link, checkpoints, self.keyring, self.run_id, self.name)  # type: ignore[arg-type]
        holdout = [(script.kind.batch(-100 - at), torch.empty(0)) for at in range(2)]
        options: dict[str, Any] = {"settings": plan.settings, "scaler": script.scaler}
        is_live = not isinstance(link, ReplayLink)
        if script.scheduler is not None:
            options["scheduler"] = script.scheduler
        if plan.taught is not None:
            folder = self.folder / "teachers"
            options["teachers"] = plan.taught.source(plan.kind, folder, self.name, is_live=is_live)
        if plan.pruning is not None:
            options["pruning"] = plan.pruning
        if plan.checkpoints:
            options |= {"checkpoints": checkpoints, "checkpoint_every": plan.checkpoints}
        options["environment"] = {"ESPER_KEYRING": str(self.keyring)}
        chosen = SessionOptions.of(options | {"resume": is_live and plan.checkpoints > 0, "name": self.name})
        identity = WorkerIdentity.of(chosen, self.number, plan.num)
        loss = (holdout, lambda outputs, _: each_loss(outputs))
        joining = Joining(script.model, script.optimizer, script.kind.sites, loss, chosen, identity, self.run_id)
        run = joining.session(link, ALL)  # type: ignore[arg-type]
        if shared.sharing.way == "ddp after":
            script.wrap()
        return run
