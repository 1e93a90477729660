"""The parts of a coordinator, put together."""

from __future__ import annotations

from esper.bus import names
from esper.bus.connect import Redis, ServerClock
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.runtime.coordinate import GROUP, LOGS, Coordinates, Desk, Seals
from esper.runtime.lease import LEASE_S

SWEEP_S = 1.0
"""A leader that was replaced may wake up and read before it hears of that."""


def seated(
    name: str, rule: Coordinates, keys: RoleKeyring, redis_reader: Redis, redis_writer: Redis, lease_s: float = LEASE_S
) -> Desk:
    """A desk for this rule, on the streams of the keys' run. It connects to nothing before it resumes."""
    guards = {log: ReplayGuard() for log in LOGS}
    inboxes = {
        log: Inbox(redis_reader, redis_writer, names.key(keys.run_id, log), GROUP, GROUP, sweep_every_s=SWEEP_S)
        for log in LOGS
    }
    seals = Seals(
        {log: Opener(keys, guard=guards[log], accept=[domain]) for log, domain in LOGS.items()},
        guards,
        Opener(keys, guard=None, accept=[Domain.DECISION], carries_out=True),
        Sealer(keys, Role.COORDINATOR, name),
    )
    return Desk(keys.run_id, rule, inboxes, seals, Outbox(redis_writer), ServerClock(), lease_s)
