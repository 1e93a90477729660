"""One seed: its module, its stage, and the record of how it came there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from esper.kasmina.blend import AlphaSchedule, Phase
from esper.kasmina.breaker import Breaker
from esper.kasmina.gates.meter import Meter
from esper.kasmina.gates.ring import LossLevel
from esper.kasmina.isolation.hooks import HookCensus, UnfreedMemory
from esper.kasmina.seeds.records import MOST_RECORDS, dispensable
from esper.kasmina.seeds.state_tensor import Column, Row
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import (
    ACTIVE_STAGES,
    BLENDED_STAGES,
    DORMANT,
    FOSSILIZED,
    GERMINATED,
    LEARNING_STAGES,
    TERMINATED,
)


class Moment(NamedTuple):
    """When something takes effect."""

    step: int
    epoch: int


@dataclass(eq=False)
class Seed:
    """State of one seed on this rank. Once it was culled its module is gone; the newest 64 records of it stay."""

    seed_id: str
    site: str
    blueprint_id: str
    stage: pb.SeedLifecycleStage
    generation: int
    alpha: Tensor
    meter: Meter
    breaker: Breaker
    parameters: Mapping[str, float] = field(default_factory=dict)  # of the blueprint, as they were given
    module: nn.Module | None = None
    schedule: AlphaSchedule = field(default_factory=AlphaSchedule)
    history: list[pb.StageRecord] = field(default_factory=list)
    records_dropped: int = 0  # of its history, and of those how many were gates that this life failed
    gates_dropped: int = 0
    paired_gain: pb.PairedGain | None = None
    num_looks: int = 0
    paused: bool = False
    stage_since_step: int = 0
    stage_since_epoch: int = 0
    gate_score: float = 0.0  # share of its criteria that held, at the newest gate
    germinated_epoch: int = 0
    embargo_until_epoch: int = 0
    violations: int = 0
    violation: str = ""  # the newest
    fault: str = ""  # what the blueprint's code raised
    complaint: pb.SeedRequest | None = None
    losses_seen: int = 0  # by the run, when this seed began to blend
    loss_before: LossLevel | None = None  # as it began to blend
    phase: Phase = Phase.LOW
    num_holds: int = 0  # of alpha, and how often it was sent back
    num_retreats: int = 0
    auto: bool = False  # the policy asks for the next stage
    attempts: int = 0  # at the gate before it, and the step of the last one
    tried_at: int = 0
    census: HookCensus | None = None  # of the site, once the seed was in it
    unfreed: UnfreedMemory | None = None  # of the module that was culled
    graphs_seen: int | None = None  # compiled by the process, once this seed had settled into blending
    seen: list[nn.Parameter] = field(default_factory=list)  # the module's, at the last look

    @property
    def learns(self) -> bool:
        return self.stage in LEARNING_STAGES and not self.paused

    @property
    def blends(self) -> bool:
        return self.stage in BLENDED_STAGES

    @property
    def alive(self) -> bool:
        """Whether a rollback has anything of it to undo: in its slot, or a part of the host, TERMINATED or not."""
        if self.stage != TERMINATED:
            return self.stage in ACTIVE_STAGES or self.stage == FOSSILIZED
        return next((each.stage for each in reversed(self.history) if each.stage != TERMINATED), DORMANT) == FOSSILIZED

    @property
    def num_bytes(self) -> int:
        """Of its module's parameters."""
        return 0 if self.module is None else sum(p.numel() * p.element_size() for p in self.module.parameters())

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that the seed's own optimizer steps, or will; none outside GERMINATED..PROBATIONARY."""
        if self.module is None or self.stage not in ACTIVE_STAGES:
            return []
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]

    def look(self) -> None:
        """Find the module's parameters anew: a walk through its names takes longer than their norms."""
        self.seen = [] if self.module is None else list(self.module.parameters())

    def gradients(self) -> list[Tensor]:
        if self.module is None or self.stage not in ACTIVE_STAGES:
            return []
        return [gradient for p in self.seen if (gradient := p.grad) is not None and p.requires_grad]

    def set_alpha(self, step: int) -> None:
        """Move alpha along its schedule; in place, so that compiled code keeps the tensor it was traced with."""
        if self.blends and self.stage != FOSSILIZED:
            self.alpha.fill_(self.schedule.at(step))

    def record(
        self,
        stage: pb.SeedLifecycleStage,
        now: Moment,
        *,
        gate: pb.SeedLifecycleGate | int = 0,
        passed: bool = True,
        evidence: Mapping[str, float] | None = None,
        detail: str = "",
    ) -> None:
        """Enter `stage` (or stay in it, where a gate failed) and write it down."""
        if stage != self.stage:
            self.stage, (self.stage_since_step, self.stage_since_epoch) = stage, now
            self.attempts, self.tried_at = 0, now.step
        if stage == GERMINATED and passed:
            self.gates_dropped = 0
        record: dict[str, Any] = {"stage": stage, "gate": gate}
        self.history.append(
            pb.StageRecord(step=now.step, passed=passed, evidence=dict(evidence or {}), detail=detail, **record)
        )
        while len(self.history) > MOST_RECORDS:
            place, counts = dispensable(self.history)
            del self.history[place]
            self.records_dropped, self.gates_dropped = self.records_dropped + 1, self.gates_dropped + counts

    def complain(self, reason: pb.ReasonCode, detail: str) -> None:
        """Ask for a cull; the coordinator decides, for all ranks."""
        if self.complaint is None:
            cull = pb.SeedOperation.SEED_OP_CULL
            self.complaint = pb.SeedRequest(seed_id=self.seed_id, operation=cull, reason=reason, detail=detail)

    def state(self, now: Moment, row: Row) -> pb.SeedState:
        """With the row of this seed, which the caller read for all seeds at once."""
        return pb.SeedState(
            seed_id=self.seed_id,
            stage=row.column(Column.LIFECYCLE_STAGE),  # type: ignore[arg-type]  # the wire has its number
            gradient_norm=row.figures.gradient_norm,
            metrics=self._metrics(row),
            age_epochs=max(now.epoch - self.germinated_epoch, 0),
            site=self.site,
            blueprint_id=self.blueprint_id,
            alpha=self.schedule.at(now.step) if self.blends else 0.0,
            stage_since_step=self.stage_since_step,
            embargo_until_epoch=self.embargo_until_epoch,
            generation=self.generation,
            paused=self.paused,
        )

    def _metrics(self, row: Row) -> dict[str, float]:
        figures = row.figures
        measured = {"fit": figures.fit, "size": figures.size, "ratio": figures.ratio}
        metrics = {name: value for name, value in measured.items() if not math.isnan(value)}
        counts = {"violations": self.violations, "alpha_holds": self.num_holds, "alpha_retreats": self.num_retreats}
        counts |= {"ready": row.column(Column.READY_FLAG), "epochs_in_stage": row.column(Column.EPOCHS_IN_STATE)}
        return metrics | {name: float(count) for name, count in counts.items()} | {"non_finite": figures.non_finite}

    def report(self) -> pb.SeedReport:
        return pb.SeedReport(
            seed_id=self.seed_id,
            site=self.site,
            blueprint_id=self.blueprint_id,
            stage=self.stage,
            history=self.history,
            paired_gain=self.paired_gain,
            records_dropped=self.records_dropped,
            gates_dropped=self.gates_dropped,
        )


def compiled_graphs() -> int:
    """Graphs that torch.compile has made in this process; reads nothing unless it was used."""
    dynamo = getattr(torch, "_dynamo", None)
    return 0 if dynamo is None else int(dynamo.utils.counters["stats"]["unique_graphs"])
