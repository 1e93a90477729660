"""`esper web` told to end by SIGTERM: its browsers are let go, and it ends with status 0, as other servers do."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from urllib.request import urlopen

from tests.scripted import ScriptedRun
from tests.web_kit import give_observer

WAIT_S = 60.0


async def test_sigterm_ends_it_in_order_also_while_a_browser_reads_along(run: ScriptedRun) -> None:
    give_observer(run)
    words = [sys.executable, "-P", "-m", "esper.cli.main", "web", run.name, "--port", "0", "--json"]

    def told_to_end() -> tuple[int, bytes, str]:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as web:
            assert web.stdout is not None and web.stderr is not None
            try:
                address = json.loads(web.stdout.readline())["address"]
                with urlopen(f"{address}events", timeout=WAIT_S) as stream:
                    first = stream.readline()
                    web.send_signal(signal.SIGTERM)
                    stream.read()  # to its end
                return web.wait(WAIT_S), first, web.stderr.read()
            finally:
                web.kill()

    status, first, said = await asyncio.to_thread(told_to_end)

    assert first.startswith(b"retry: ")
    assert (status, said) == (0, "")
