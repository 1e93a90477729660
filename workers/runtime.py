"""The runtime beside one trainer. Started by esper.attach(), never by hand: it inherits two descriptors."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from esper.errors import EsperError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime import access, logging, metrics, process, settings
from esper.runtime.assembly import assemble
from esper.runtime.lanes import Lanes
from esper.runtime.packets import Origin


class RuntimeSettings(settings.Settings):
    """What esper.attach() puts into the environment."""

    link_control_fd: int
    link_rows_fd: int


async def main(stopping: asyncio.Event) -> None:
    """Serve the trainer until it hangs up; tell it the reason where that cannot be."""
    chosen = settings.load(RuntimeSettings)
    lanes = await Lanes.adopt(chosen.link_control_fd, chosen.link_rows_fd)
    try:
        found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.WORKER)
        logging.configure(chosen, role="runtime", worker=chosen.name, run=found.run_id)
        beside = await assemble(found, Origin(chosen.name, chosen.region), lanes)
        registry, health = CollectorRegistry(), metrics.Health()
        metrics.watch_inboxes(registry, health, list(beside.logs.values()))
        async with metrics.endpoint(chosen, registry, health):
            await beside.serve(stopping)
    except EsperError as error:
        lanes.tell(pb.ToTrainer(failed=pb.RuntimeFailed(sentence=str(error))))
        raise
    finally:
        await lanes.close()


if __name__ == "__main__":
    process.run(main)
