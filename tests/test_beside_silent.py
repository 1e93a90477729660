"""A runtime that ends beside a Redis that stands still: nothing goes on behind it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structlog.testing import capture_logs

from esper.bus.connect import writer
from esper.bus.embedded import EmbeddedRedis
from esper.runtime.assembly import LOGS
from tests.beside_kit import PATIENCE_S, Run
from tests.bus_kit import own_server


@contextmanager
def standing_still(server: EmbeddedRedis) -> Iterator[None]:
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


async def test_no_read_goes_on_behind_its_end(short_directory: Path, run_id: str) -> None:
    """It would be told that Redis is lost as its own connection is closed, say so, and open another one."""
    with own_server(short_directory) as server, capture_logs() as events:
        steered = Run(admin := writer(server.url), server.url, run_id)
        async with admin, asyncio.timeout(PATIENCE_S), steered.runtime() as (beside, _):
            before, stopping = asyncio.all_tasks(), asyncio.Event()
            serving = asyncio.create_task(beside.serve(stopping))
            while (await admin.info("clients"))["blocked_clients"] < len(LOGS):
                assert not serving.done()

            with standing_still(server):
                stopping.set()
                await serving
                left = asyncio.all_tasks() - before

    assert left == set()
    assert [each["event"] for each in events if each["event"] == "bus.lost"] == []
