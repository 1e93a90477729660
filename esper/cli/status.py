"""`esper status`: where each worker and each seed of a run stands."""

from __future__ import annotations

import asyncio
import json as notation
import time

from esper.cli.options import AsObject, LiveRun


def status(
    run: LiveRun = None,
    json: AsObject = False,
) -> None:
    """Show the newest heartbeat of each worker of a live run."""
    asyncio.run(_status(run, json))


async def _status(run: str | None, as_json: bool) -> None:
    from esper.cli import format as form
    from esper.client import Controller
    from esper.view.wording import counted

    async with Controller.connect(run, name="status") as controller:
        workers = await controller.status()
    if as_json:
        beats = {name: form.as_dict(beat) for name, beat in sorted(workers.items())}
        print(notation.dumps({"run": controller.run_id, "workers": beats}))
        return
    print(f"run {controller.run_id}: {counted(len(workers), 'worker')} heard of")
    for _, beat in sorted(workers.items()):
        print(form.heartbeat_line(beat, time.time_ns()))
        for state in beat.seeds:
            print(form.seed_line(state))
