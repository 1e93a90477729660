"""The barrier coordinator: decides at which step each change takes effect on all workers, and which change may."""

from __future__ import annotations

import asyncio

from esper.bus import names
from esper.bus.connect import Redis, ServerClock, reader, wait_ready, writer
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.runtime import access, logging, metrics, process, settings
from esper.runtime.coordinate import GROUP, LOGS, Desk, Seals
from esper.runtime.upkeep import Duties, kept_up
from esper.tamiyo.coordinator import Coordinator


class CoordinatorSettings(settings.Settings):
    name: settings.Name = "coordinator"
    snapshot_every: int = 1000


def desk(keys: RoleKeyring, chosen: CoordinatorSettings, redis_reader: Redis, redis_writer: Redis) -> Desk:
    """Everything that one coordinator is made of, its connections aside."""
    guards = {log: ReplayGuard() for log in LOGS}
    return Desk(
        keys.run_id,
        Coordinator(chosen.name, snapshot_every=chosen.snapshot_every),
        {log: Inbox(redis_reader, redis_writer, names.key(keys.run_id, log), GROUP, GROUP) for log in LOGS},
        Seals(
            {log: Opener(keys, guard=guards[log], accept=[domain]) for log, domain in LOGS.items()},
            guards,
            Opener(keys, guard=None, accept=[Domain.DECISION], carries_out=True),
            Sealer(keys, Role.COORDINATOR, chosen.name),
        ),
        *(Outbox(redis_writer), ServerClock()),
    )


async def main(stopping: asyncio.Event) -> None:
    """Coordinate one run until told to stop."""
    chosen = settings.load(CoordinatorSettings)
    logging.configure(chosen, role="coordinator", run=chosen.run)
    found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.COORDINATOR)
    async with reader(found.redis_url) as redis_reader, writer(found.redis_url) as redis_writer:
        await wait_ready(redis_writer)
        coordinating = desk(found.keyring, chosen, redis_reader, redis_writer)
        inboxes, refusals = list(coordinating.inboxes.values()), coordinating.refusals
        duties = Duties(retained=[names.key(found.run_id, "dead")], surveys=True)
        async with found.kept_current(), kept_up(chosen, found.run_id, inboxes, refusals, duties) as registry:
            registry.register(metrics.MissingMetrics(coordinating.missing))
            await coordinating.serve(stopping)


if __name__ == "__main__":
    process.run(main)
