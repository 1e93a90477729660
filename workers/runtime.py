"""The runtime beside one trainer. Started by esper.attach(), never by hand: it inherits its descriptors."""

from __future__ import annotations

from esper.runtime import gc_policy

with gc_policy.loading(*gc_policy.OPTIONAL):
    import asyncio

    from esper.errors import BusError, EsperError
    from esper.leyline import contracts as pb
    from esper.leyline.kinds import Role
    from esper.runtime import access, logging, process, settings, timekeeping
    from esper.runtime.beside import assembly, heartbeat_repeater, namesake
    from esper.runtime.beside.alarm import rung_if_evicted
    from esper.runtime.beside.lanes import Lanes
    from esper.runtime.beside.launcher import while_launched
    from esper.runtime.beside.options import RuntimeSettings
    from esper.runtime.beside.packets import Origin
    from esper.runtime.beside.trainer_figures import TrainerMetrics
    from esper.runtime.operations.upkeep import HealthEndpoint, RoleDuties, kept_up


async def main(stopping: asyncio.Event) -> None:
    """Serve the trainer until it hangs up; tell it the reason where that cannot be."""
    chosen = settings.load(RuntimeSettings)
    logging.configure(chosen, role="runtime", worker=chosen.name, run=chosen.run)
    lanes = await Lanes.adopt(chosen.link_control_fd, chosen.link_rows_fd, chosen.link_bell_fd)
    new = namesake.Newcomer(chosen.name, chosen.link_world_size) if chosen.link_fresh else None
    try:
        found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.WORKER)
        origin = Origin(chosen.name, chosen.region, chosen.telemetry_format)
        told, durability, trainer = chosen.link_decided, chosen.durability, chosen.link_trainer_pid
        async with assembly.assembled(
            found, origin, lanes, newcomer=new, decided=told, waits=True, durability=durability
        ) as beside:
            beside.is_replica, beside.trainer = chosen.link_world_size == 1, trainer
            beside.repeater = beats = heartbeat_repeater.HeartbeatRepeater(chosen.step_timeout_s, trainer)
            right = timekeeping.kept_right(beside.clock, beside.outbox.redis)
            endpoint, inboxes = HealthEndpoint("runtime", chosen, found), list(beside.logs.values())
            duties = RoleDuties(shows=[TrainerMetrics(beats)], clock=beside.clock)
            upkeep = kept_up(endpoint, inboxes, beside.following.refusals, duties)
            alarm = rung_if_evicted(chosen.link_alarm_fd, trainer)
            async with alarm, right, found.kept_current(), upkeep:
                new = None
                await while_launched(beside.serve(stopping), trainer, chosen.link_launcher_pid)
    except EsperError as error:
        if new or not isinstance(error, BusError):  # later a Redis that is away ends no training
            lanes.tell(pb.ToTrainer(failed=pb.RuntimeFailed(sentence=str(error))))
        raise
    finally:
        await lanes.close()


if __name__ == "__main__":
    process.run(main, hears_ctrl_c=False)
