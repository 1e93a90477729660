"""The runtime beside one trainer. Started by esper.attach(), never by hand: it inherits two descriptors."""

from __future__ import annotations

import asyncio

from esper.bus import names
from esper.bus.connect import ServerClock, check_server, reader, wait_ready, writer
from esper.bus.inbox import Inbox
from esper.bus.outbox import Outbox
from esper.bus.publisher import Publisher
from esper.errors import EsperError
from esper.leyline import contracts as pb
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.runtime import process, settings
from esper.runtime.beside import Beside, windows_key
from esper.runtime.lanes import Lanes
from esper.runtime.packets import Origin

LOGS = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "decisions": Domain.DECISION}


class RuntimeSettings(settings.Settings):
    """What esper.attach() puts into the environment."""

    link_control_fd: int
    link_rows_fd: int


async def beside(chosen: RuntimeSettings, lanes: Lanes) -> Beside:
    """Build the runtime of one trainer from its settings."""
    keys = RoleKeyring.load(chosen.keyring)
    run_id, name, clock = keys.run_id, chosen.name, ServerClock()
    redis = writer(chosen.redis_url)
    await wait_ready(redis)
    await check_server(redis)
    await clock.look(redis)
    guards = {log: ReplayGuard() for log in LOGS}
    for log, guard in guards.items():
        guard.load(await redis.hgetall(windows_key(run_id, name, log)))
    return Beside(
        run_id,
        Origin(name, chosen.region),
        lanes,
        {log: Inbox(reader(chosen.redis_url), redis, names.key(run_id, log), name, name) for log in LOGS},
        {log: Opener(keys, name=name, guard=guards[log], accept=[LOGS[log]], carries_out=True) for log in LOGS},
        guards,
        Outbox(redis),
        Publisher(redis),
        Sealer(keys, Role.WORKER, name),
        clock.now_ms,
    )


async def main(stopping: asyncio.Event) -> None:
    """Serve the trainer until it hangs up; tell it the reason where that cannot be."""
    chosen = settings.load(RuntimeSettings)
    lanes = await Lanes.adopt(chosen.link_control_fd, chosen.link_rows_fd)
    try:
        await (await beside(chosen, lanes)).serve(stopping)
    except EsperError as error:
        lanes.tell(pb.ToTrainer(failed=pb.RuntimeFailed(sentence=str(error))))
        raise
    finally:
        await lanes.close()


if __name__ == "__main__":
    process.run(main)
