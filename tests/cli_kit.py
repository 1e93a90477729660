"""The command line as a test calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.testing import CliRunner

from esper.cli.main import HOMES, app, load


def commands_below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something: words after `esper`, and the command."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield path, command
    for name, child in below.items():
        yield from commands_below(child, f"{path} {name}")


@cache
def every_command() -> dict[str, Any]:
    return {path: each for name in HOMES for path, each in commands_below(load(name), name)}


async def called(*words: str, given: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper` with these words, which reads `given` from stdin."""
    result = await asyncio.to_thread(CliRunner().invoke, app, words, input=given)
    return result.exit_code, result.stdout, result.stderr
