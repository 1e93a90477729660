"""Starts `esper up` again in the background, and waits until its run is ready."""

from __future__ import annotations

import json as notation
import os
import subprocess
import sys
from collections.abc import Sequence

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
    with open(hears, "rb") as pipe:
        try:
            line = pipe.readline()
        except KeyboardInterrupt:  # nobody was told how to reach it: it ends as well, in order
            keeper.terminate()
            keeper.wait()
            raise
    if not line:
        return keeper.wait()
    keeper.returncode = 0  # it goes on by itself, so that nobody waits for it
    told = notation.loads(line)
    typer.echo(f"run {told['run']} is up; its logs: {told['logs']}")
    typer.echo(f"esper ps {told['run']} shows its processes, esper down {told['run']} ends it")
    return 0
