"""The settings and the parts of a coordinator, put together."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from esper.bus import names
from esper.bus.connect import Redis, ServerClock
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.runtime import settings
from esper.runtime.coordinator.lease import LEASE_S
from esper.runtime.coordinator.loop import COMMANDS, GROUP, LOGS, CoordinatorLoop, Seals
from esper.runtime.coordinator.rule import Coordinates
from esper.runtime.serving.clock_skew import DatedOpener

SWEEP_S = 1.0
"""A leader that was replaced may wake up and read before it hears of that."""


class CoordinatorSettings(settings.Settings):
    name: settings.Name = "coordinator"
    """As for every process."""
    snapshot_every: int = 1000
    """Steps from one snapshot in each rank's memory, which a rollback goes back to, to the next."""
    archive: Path | None = None
    """A folder for what is trimmed from the logs; without one they are kept whole."""
    quarantine_from: int = Field(100, ge=0)
    """Epoch from which on a rank is sent away whose weights or gradients are not those of most; before, it is told."""
    silence_s: float = Field(5.0, ge=1.0)
    """After so long without a heartbeat of one rank, its whole process group begins anew."""
    mute_rounds: int = Field(3, ge=1)
    """A rank that votes in none of so many rounds, though it is heard from its boundary, is given up as if silent."""
    lease_s: float = Field(LEASE_S, ge=0.5, le=60.0)
    """Of several coordinators one leads; another takes over when nothing was heard of it for so long."""


def assembled(
    name: str, rule: Coordinates, keys: RoleKeyring, redis_reader: Redis, redis_writer: Redis, lease_s: float
) -> CoordinatorLoop:
    """A loop for this rule, on the streams of the keys' run. It connects to nothing before it resumes."""
    guards, clock = {log: ReplayGuard() for log in LOGS}, ServerClock(names.key(keys.run_id, "decisions"))
    inboxes = {
        log: Inbox(redis_reader, redis_writer, names.key(keys.run_id, log), GROUP, GROUP, pace)
        for log, pace in ((log, Pace(sweep_every_s=SWEEP_S, in_order=log in COMMANDS)) for log in LOGS)
    }
    seals = Seals(
        {log: DatedOpener(keys, clock, guard=guards[log], accept=[domain]) for log, domain in LOGS.items()},
        guards,
        DatedOpener(keys, clock, guard=None, accept=[Domain.DECISION], carries_out=True),
        Sealer(keys, Role.COORDINATOR, name, clock_ns=clock.now_ns),
    )
    return CoordinatorLoop(keys.run_id, rule, inboxes, seals, Outbox(redis_writer), clock, lease_s)
