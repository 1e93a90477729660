"""What attach() may be told beyond the model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch.optim.lr_scheduler import LRScheduler

from esper.errors import SettingError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.leyline.field_checks import patience_s
from esper.tolaria.checkpoints.rank import Stateful
from esper.tolaria.teachers.teachers import TeacherSource

READY_S = 120.0
"""A runtime gives up a Redis by itself after 20 s. The rest is its start, a second of work: much else may go on."""


@dataclass(frozen=True)
class SessionOptions:
    """Fields are keyword arguments of attach(). An empty name or region is read from ESPER_NAME or ESPER_REGION."""

    scaler: torch.amp.GradScaler | None = None  # of the loop; seeds follow it, and it follows checkpoints
    scheduler: LRScheduler | Sequence[LRScheduler] | None = None  # of the optimizer; follows fossils and checkpoints
    own_host: bool = False  # True: leases (STEP on "host") govern the optimizer's own steps too
    steps_per_epoch: int = 0  # 0: the loop calls epoch_end() itself
    required: bool = True  # False: train unsteered where the runtime is not ready
    ready_s: float | None = None  # how long its runtime may take to start; default ESPER_READY_S, or 120
    name: str = ""  # of this worker; default worker-<rank>
    region: str = ""  # default r0; of ESPER_REGIONS each rank takes the next one
    data: str = ""  # name of the data set, for the report
    settings: KasminaConfig = field(default_factory=KasminaConfig)  # of seeds and gates: see below
    # Importance is measured where it is asked for: each measurement reads every gradient once more.
    pruning: KasminaCheckpointPruningConfig = field(
        default_factory=partial(KasminaCheckpointPruningConfig, importance_every=0)
    )  # of the host's channels and weights: see below
    checkpoints: Path | str | None = None  # a folder; below it one of the run, and one of the rank
    checkpoint_every: int = 0  # steps; 0: only Session.checkpoints.save() and emergencies make one
    checkpoints_kept: int = 3  # the newest; older ones are deleted
    resume: bool = False  # from the newest checkpoint that verifies; where there is none, the run begins
    loader: Stateful | None = None  # its state goes with checkpoints, and comes back with `resume`
    teachers: TeacherSource | None = None  # to distil from: REGISTER_TEACHER names one of its files by digest
    environment: Mapping[str, str] = field(default_factory=dict)  # for the runtime process, over this one's

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SessionOptions:
        """Check names and schedulers; raises SettingError for one that is no field, or no scheduler of torch's."""
        known = [each.name for each in fields(cls)]
        for name in options:
            if name not in known:
                raise SettingError("attach() option", name, f"one of {', '.join(known)}")
        chosen = cls(**options)
        chosen.schedulers()
        chosen.patience_s()
        return chosen

    def patience_s(self) -> float:
        """How long the runtime may take until it is ready; SettingError where what is said is no such time."""
        told = os.environ.get("ESPER_READY_S", "")
        if self.ready_s is not None or not told:
            return patience_s("ready_s", READY_S if self.ready_s is None else self.ready_s)
        try:
            return patience_s("ESPER_READY_S", float(told))
        except ValueError:
            raise SettingError("ESPER_READY_S", told, "seconds") from None

    def schedulers(self) -> tuple[LRScheduler, ...]:
        """Of the optimizer, one or several."""
        given = (self.scheduler,) if isinstance(self.scheduler, LRScheduler) else tuple(self.scheduler or ())
        for each in given:
            if not isinstance(each, LRScheduler):
                raise SettingError("scheduler", type(each).__name__, "an LRScheduler of torch.optim, or several")
        return given


class Options(TypedDict, total=False):
    """The same fields, for a type checker and for completion; SessionOptions says what each means."""

    scaler: torch.amp.GradScaler | None
    scheduler: LRScheduler | Sequence[LRScheduler] | None
    own_host: bool
    steps_per_epoch: int
    required: bool
    ready_s: float | None
    name: str
    region: str
    data: str
    settings: KasminaConfig
    pruning: KasminaCheckpointPruningConfig
    checkpoints: Path | str | None
    checkpoint_every: int
    checkpoints_kept: int
    resume: bool
    loader: Stateful | None
    teachers: TeacherSource | None
    environment: Mapping[str, str]


@dataclass(frozen=True)
class WorkerIdentity:
    """Which worker of its run this process is."""

    name: str
    region: str
    rank: int
    world_size: int

    @classmethod
    def of(cls, options: SessionOptions, rank: int, world_size: int) -> WorkerIdentity:
        """Arguments win over the environment, and there what is said of this rank alone over what is said to all."""
        name = options.name or os.environ.get("ESPER_NAME") or f"worker-{rank}"
        regions = os.environ.get("ESPER_REGIONS", "").split(",")
        region = options.region or os.environ.get("ESPER_REGION") or regions[rank % len(regions)] or "r0"
        return cls(name, region, rank, world_size)
