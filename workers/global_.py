"""Tier 2 of the telemetry: folds the aggregates of every region of a run, and keeps the running total."""

from __future__ import annotations

from esper.runtime import gc_policy

with gc_policy.loading(*gc_policy.OPTIONAL):
    import asyncio
    from secrets import token_hex

    from esper.bus import connect, names
    from esper.bus.group.consumer import Pace
    from esper.bus.group.inbox import Inbox
    from esper.bus.group.outbox import Outbox
    from esper.leyline import contracts as pb
    from esper.leyline.kinds import Domain, Role
    from esper.leyline.seal import Opener, Sealer
    from esper.narset.global_ import Global
    from esper.runtime import access, logging, process, settings
    from esper.runtime.aggregator.loop import RECLAIM_AFTER_MS, Aggregator, Pipeline, Target, opening
    from esper.runtime.operations.upkeep import HealthEndpoint, RoleDuties, kept_up
    from esper.runtime.timekeeping import kept_right


class GlobalSettings(settings.Settings):
    """What it is told beside what every process is."""

    regions: str
    """Names of the regions whose aggregates it folds, with commas between; ranks take turns in them."""


async def main(stopping: asyncio.Event) -> None:
    """Fold the regions' aggregates until told to stop."""
    chosen = settings.load(GlobalSettings)
    logging.configure(chosen, role="global", worker=chosen.name, run=chosen.run)
    regions = [names.checked_name("ESPER_REGIONS", region) for region in dict.fromkeys(chosen.regions.split(","))]
    found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.GLOBAL)
    async with connect.reader(found.redis_url) as reader, connect.writer(found.redis_url) as writer:
        await connect.wait_ready(writer)
        sources = [names.region_key(found.run_id, region, "regional") for region in regions]
        consumer = f"{chosen.name}-{token_hex(4)}"
        pace = Pace(reclaim_after_ms=RECLAIM_AFTER_MS)
        inboxes = [Inbox(reader, writer, source, "global", consumer, pace) for source in sources]
        tier = Global(regions)
        target = Target(names.key(found.run_id, "global"), names.key(found.run_id, "totals"))
        clock = connect.ServerClock(target.stream)
        opener = Opener(found.keyring, guard=None, accept={Domain.AGGREGATE})  # regions number what they say
        sealer = Sealer(found.keyring, Role.GLOBAL, chosen.name, clock_ns=clock.now_ns)
        pipeline = Pipeline(opening(opener, clock, pb.AggregatedTelemetry), tier.on_opened, sealer.seal)
        aggregator = Aggregator(tier, pipeline, inboxes, Outbox(writer), target)
        repeats = {sources[0]: lambda: tier.num_repeats}
        duties = RoleDuties(retained=[target.stream], repeats=repeats, shows=[aggregator.figures], clock=clock)
        upkeep = kept_up(HealthEndpoint("global", chosen, found), inboxes, aggregator.refusals, duties)
        async with kept_right(clock, writer), found.kept_current(), upkeep:
            await aggregator.run(stopping)


if __name__ == "__main__":
    process.run(main)
