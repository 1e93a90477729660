"""The barrier coordinator: decides at which step each change takes effect on all workers, and which change may."""

from __future__ import annotations

from esper.runtime import gc_policy

with gc_policy.loading(*gc_policy.OPTIONAL):
    import asyncio

    from esper.bus import names
    from esper.bus.connect import Redis, reader, wait_ready, writer
    from esper.leyline.keys.keyring import RoleKeyring
    from esper.leyline.kinds import Role
    from esper.runtime import access, logging, process, settings
    from esper.runtime.coordinator.assembly import CoordinatorSettings as CoordinatorSettings, assembled
    from esper.runtime.coordinator.lease import Standby
    from esper.runtime.coordinator.loop import CoordinatorLoop
    from esper.runtime.operations.figures import MissingMetrics
    from esper.runtime.operations.trimming import trimmer
    from esper.runtime.operations.upkeep import HealthEndpoint, RoleDuties, kept_up
    from esper.tamiyo.coordinator import Coordinator


def coordinator_loop(keys: RoleKeyring, chosen: CoordinatorSettings, reading: Redis, writing: Redis) -> CoordinatorLoop:
    """The loop of the rule that these settings ask for."""
    rule = Coordinator(
        chosen.name,
        snapshot_every=chosen.snapshot_every,
        quarantine_from=chosen.quarantine_from,
        silence_ns=int(chosen.silence_s * 1e9),
        mute_rounds=chosen.mute_rounds,
    )
    return assembled(chosen.name, rule, keys, reading, writing, chosen.lease_s)


async def main(stopping: asyncio.Event) -> None:
    """Coordinate one run until told to stop."""
    chosen = settings.load(CoordinatorSettings)
    logging.configure(chosen, role="coordinator", run=chosen.run)
    found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.COORDINATOR)
    async with reader(found.redis_url) as redis_reader, writer(found.redis_url) as redis_writer:
        await wait_ready(redis_writer)
        coordinating = coordinator_loop(found.keyring, chosen, redis_reader, redis_writer)
        standby = Standby(redis_writer, coordinating.windows.hash_key, chosen.lease_s)
        inboxes, refusals = list(coordinating.inboxes.values()), coordinating.refusals
        retained = [names.key(found.run_id, name) for name in ("dead", "state")]
        logs = trimmer(chosen.archive, redis_writer, found.run_id, coordinating.decision)
        shows = [coordinating.figures, MissingMetrics(coordinating.missing)]
        duties = RoleDuties(retained=retained, surveys=True, logs=logs, shows=shows)
        endpoint, clock = HealthEndpoint("coordinator", chosen, found), coordinating.clock
        async with found.kept_current(), endpoint.answering(redis_writer.outage, clock):
            if not await standby.until_free(stopping):
                return
            async with kept_up(endpoint, inboxes, refusals, duties):
                await coordinating.serve(stopping)


if __name__ == "__main__":
    process.run(main)
