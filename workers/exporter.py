"""Carries what the global tier of a run says to Prometheus, TensorBoard or a file of JSON lines."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from esper.bus.names import checked_name
from esper.cli.exporting import exporting, follow, for_scrapes, into_files
from esper.errors import SettingError
from esper.leyline.kinds import Role
from esper.narset.running import checked_bounds
from esper.runtime import access, logging, process, settings
from esper.runtime.operations.upkeep import HealthEndpoint


class ExporterSettings(settings.Settings):
    export: Literal["prometheus", "tensorboard", "jsonl"] = "prometheus"
    """Where to: an endpoint for scrapes, event files, or a file of JSON lines."""
    export_path: Path | None = None
    """The file of JSON lines, or the folder of event files."""
    export_buckets: str = ""
    """Upper ends of Prometheus's buckets in base units, with commas between; empty: 1e-5 to 5e4."""


async def main(stopping: asyncio.Event) -> None:
    """Carry over until told to stop; a batch that is being written is finished."""
    chosen = settings.load(ExporterSettings)
    logging.configure(chosen, role="exporter", worker=chosen.name, run=chosen.run)
    bounds = checked_bounds(chosen.export_buckets)
    found = await access.find(chosen.run, chosen.redis_url, chosen.keyring, Role.OBSERVER)
    async with AsyncExitStack() as stack:
        if chosen.export == "prometheus":
            name = checked_name("ESPER_NAME", chosen.name)
            export = await stack.enter_async_context(
                exporting(found, await stack.enter_async_context(for_scrapes(found, bounds, name)))
            )
        elif chosen.export_path is None:
            raise SettingError("ESPER_EXPORT_PATH", None, "a file of JSON lines, or a folder of event files")
        else:
            sink = stack.enter_context(into_files(chosen.export, chosen.export_path, found.run_id))
            export = await stack.enter_async_context(exporting(found, sink))
        endpoint = HealthEndpoint("exporter", chosen, found)
        follow(export, found.run_id, endpoint.registry, endpoint.health)
        await stack.enter_async_context(endpoint.answering())
        await export.run(stopping)


if __name__ == "__main__":
    process.run(main)
