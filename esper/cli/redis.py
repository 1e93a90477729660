"""`esper redis`: an embedded server in the foreground, for runs that are started by hand."""

from __future__ import annotations

import json as notation
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from esper.bus.embedded import EmbeddedRedis
from esper.errors import BusError, SettingError

LOOK_EVERY_S = 0.5

app = typer.Typer()


@app.command("redis")
def redis_command(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where its data and its socket lie; kept. Without it: a temporary one.")
    ] = None,
    appendfsync: Annotated[str, typer.Option(help="everysec, always or no.")] = "everysec",
    json: Annotated[bool, typer.Option("--json", help="The URL in a JSON object.")] = False,
) -> None:
    """Run a private redis-server until Ctrl-C. Prints its URL, for ESPER_REDIS_URL."""
    if appendfsync not in ("everysec", "always", "no"):
        raise SettingError("--appendfsync", appendfsync, "everysec, always or no")
    if directory is not None:
        serve(directory, appendfsync, json)
        return
    with tempfile.TemporaryDirectory(prefix="esper-redis-") as temporary:
        serve(Path(temporary), appendfsync, json)


def serve(directory: Path, appendfsync: str, as_json: bool) -> None:
    """Start it, say where it is, and stop it at the first signal."""
    ends = (signal.SIGINT, signal.SIGTERM)
    with EmbeddedRedis(directory, appendfsync=appendfsync) as server:
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        print(notation.dumps({"url": server.url}) if as_json else server.url, flush=True)
        while signal.sigtimedwait(ends, LOOK_EVERY_S) is None:
            if not server.is_running():
                raise BusError(f"the embedded Redis ended by itself: {server.last_words()}")
