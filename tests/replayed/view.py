"""What those who steer a trainer see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from esper.session import Session


@dataclass(frozen=True)
class View:
    """Of its session, at one moment; as it is before there is one."""

    step: int = 0
    stages: Mapping[str, int] = field(default_factory=dict)
    held: tuple[int, ...] = ()  # steps of snapshots
    is_paused: bool = False
    positions: tuple[Mapping[str, str], ...] = ()  # of the logs, at each checkpoint that is held

    @classmethod
    def of(cls, run: Session) -> View:
        checkpoints = run.checkpoints
        return cls(
            run.step_number,
            {each.seed_id: int(each.stage) for each in run.executor.reports()},
            tuple(ref.step for ref in run.status.states.refs()),
            bool(run.exchange.boundary.paused_before),
            () if checkpoints is None else tuple(dict(log.positions) for _, _, log in checkpoints._held.values()),
        )
