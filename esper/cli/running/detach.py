"""Starts `esper up` again in the background, and waits until its run is ready."""

from __future__ import annotations

import json as notation
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import typer


def detached(arguments: Sequence[str]) -> int:
    """Exit status: 0 once it is ready, else its own; what it says until then comes to this terminal."""
    hears, tells = os.pipe()
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", "esper.cli.main", "up", *arguments, "--told-fd", str(tells)],
        stdin=subprocess.DEVNULL,
        pass_fds=(tells,),
        start_new_session=True,  # neither Ctrl-C nor the end of this terminal is meant for it
    )
    os.close(tells)
    told: dict[str, Any] = {}
    with open(hears, "rb") as pipe:  # as soon as nobody reads it any more, the run ends
        try:
            while "run" not in told and (line := pipe.readline()):
                told = notation.loads(line)
                if "waits_for" in told:
                    late = f"{', '.join(told['waits_for'])} not ready after {told['after_s']:g} s; see {told['logs']}"
                    typer.echo(f"esper: {late}", err=True)
        except KeyboardInterrupt:  # nobody was told how to reach it: it ends as well, in order
            keeper.terminate()
            keeper.wait()
            raise
    if "run" not in told:
        return keeper.wait()
    keeper.returncode = 0  # it goes on by itself, so that nobody waits for it
    typer.echo(f"run {told['run']} is up; its logs: {told['logs']}")
    typer.echo(f"esper ps {told['run']} shows its processes, esper down {told['run']} ends it")
    return 0
