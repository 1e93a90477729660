"""`esper web`: a live run in a browser."""

from __future__ import annotations

import asyncio
import json as notation
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from esper.cli.extras import require
from esper.cli.options import NamedRun, SameRun, either

if TYPE_CHECKING:
    from esper.web.serving import ListenAddress

PORT = 8470
OPEN_TO_OTHERS = "whoever reaches {host} can read this run; without TLS in front a token is read along, too"

TokenFile = Annotated[
    Path | None, typer.Option(help="Who knows what is in it may publish; else ESPER_WEB_TOKEN; else nobody may.")
]
AllowHost = Annotated[list[str] | None, typer.Option(help="A name that browsers may ask this server by. Repeatable.")]


def web(
    named: NamedRun = None,
    run: SameRun = None,
    host: Annotated[str, typer.Option(help="Address to answer at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to answer at; 0: a free one.")] = PORT,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    json: Annotated[bool, typer.Option("--json", help="Print where it answers as one JSON object.")] = False,
) -> None:
    """Show a live run in a browser, until interrupted: plots, seeds, each decision with its signature."""
    require("esper web", "web")
    from esper.web.serving import ListenAddress

    with suppress(asyncio.CancelledError):  # by SIGTERM, as any server is ended: status 0
        asyncio.run(_web(either(named, run), ListenAddress(host, port, [host, *(allow_host or ())]), token_file, json))


async def _web(run: str | None, address: ListenAddress, token_file: Path | None, as_json: bool) -> None:
    from esper.runtime.watching.live import reach
    from esper.web import serving
    from esper.web.guards import is_loopback
    from esper.web.tokens import chosen

    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    token, found = chosen(token_file), await reach(run)
    with serving.bound(address) as listening:
        async with serving.site_of(found, token) as (site, watch):
            if not is_loopback(address.host):
                print(f"esper: warning: {OPEN_TO_OTHERS.format(host=address.host)}", file=sys.stderr)
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            told = {"address": f"http://{shown}:{port}/", "run": found.run_id, "publishes": token is not None}
            word = "may publish with the token" if token else "read-only"
            print(notation.dumps(told) if as_json else f"{told['address']} ({word})", flush=True)
            # From here on the server hears it, lets its browsers go, and raises it again once it has ended.
            loop.add_signal_handler(signal.SIGTERM, lambda: None)
            await serving.serve(site, watch, address, listening)
