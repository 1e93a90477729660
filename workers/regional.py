"""Tier 1 of the telemetry: one or more for each region of a run."""

from __future__ import annotations

from esper.runtime import gc_policy, sorting

with gc_policy.loading(*gc_policy.OPTIONAL):
    sorting.load_numpy()  # before the sketches do

    import asyncio
    from secrets import token_hex

    from esper.bus import connect, names
    from esper.bus.group.consumer import Pace
    from esper.bus.group.inbox import Inbox
    from esper.bus.group.outbox import Outbox
    from esper.leyline import contracts as pb
    from esper.leyline.kinds import Domain, Role
    from esper.leyline.seal import Opener, Sealer
    from esper.narset.global_ import met_of
    from esper.narset.regional import Regional
    from esper.narset.zero_copy import readings
    from esper.runtime import access, logging, process, settings
    from esper.runtime.aggregator.loop import RECLAIM_AFTER_MS, Aggregator, Pipeline, Target, opening
    from esper.runtime.aggregator.lost_state import Counted
    from esper.runtime.operations.upkeep import HealthEndpoint, RoleDuties, kept_up
    from esper.runtime.timekeeping import kept_right


async def main(stopping: asyncio.Event) -> None:
    """Fold the region's telemetry until told to stop."""
    chosen = settings.load(settings.Settings)
    logging.configure(chosen, role="regional", worker=chosen.name, run=chosen.run, region=chosen.region)
    found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.REGIONAL)
    async with connect.reader(found.redis_url) as reader, connect.writer(found.redis_url) as writer:
        await connect.wait_ready(writer)
        telemetry, regional, windows = (
            names.region_key(found.run_id, chosen.region, name) for name in ("telemetry", "regional", "windows")
        )
        clock = connect.ServerClock(telemetry)
        counted_in = Counted(names.key(found.run_id, "totals"), met_of(chosen.region))
        consumer = f"{chosen.name}-{token_hex(4)}"
        inbox = Inbox(reader, writer, telemetry, "regional", consumer, Pace(reclaim_after_ms=RECLAIM_AFTER_MS))
        tier = Regional(chosen.region)
        # No replay guard: a frame that is replayed holds packets met before, which the tier leaves out and counts.
        opener = Opener(found.keyring, name=chosen.region, guard=None, accept={Domain.TELEMETRY}, readings=readings())
        sealer = Sealer(found.keyring, Role.REGIONAL, chosen.name, clock_ns=clock.now_ns)
        pipeline = Pipeline(
            opening(opener, clock, pb.TelemetryFrame, pb.TelemetryPacket, pb.ColumnarFrame), tier.on_opened, sealer.seal
        )
        aggregator = Aggregator(tier, pipeline, [inbox], Outbox(writer), Target(regional, windows, counted_in))
        duties = RoleDuties(repeats={telemetry: lambda: tier.num_repeats}, shows=[aggregator.figures], clock=clock)
        upkeep = kept_up(HealthEndpoint("regional", chosen, found), [inbox], aggregator.refusals, duties)
        async with kept_right(clock, writer), found.kept_current(), upkeep:
            await aggregator.run(stopping)


if __name__ == "__main__":
    process.run(main)
