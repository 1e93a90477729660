"""A command as it is typed: the words of `esper publish`, read by the same grammar."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from typer.main import get_command

from esper.cli.main import UsageError, usage_sentence
from esper.cli.publish import EXAMPLES, build
from esper.client import Controller, Receipt
from esper.errors import SettingError

Operation = Callable[[Controller], Awaitable[Receipt]]
ELSEWHERE = {"--help", "--run", "--json", "--timeout", "--wait", "--no-wait", "--attempts"}
"""Options of the command line that say nothing of the command itself."""
EXPECTED = "the words behind `esper publish`, such as: cull s0"


def parsed(line: str) -> Operation:
    """The operation that a line asks for. SettingError says what is wrong with it; nothing is sent."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SettingError("command", line, f"{EXPECTED} ({error})") from None
    if not words or (wrong := ELSEWHERE & {word.partition("=")[0] for word in words}):
        raise SettingError("command", line, f"{EXPECTED}{f', without {sorted(wrong)[0]}' if words else ''}")
    found: list[Operation] = []
    _grammar()(words, found)
    if not found:
        raise SettingError("command", line, EXPECTED)
    return found[0]


def examples(start: str, seed: str = "") -> list[str]:
    """Lines that begin with what was typed so far, for the chosen seed; all of them where nothing was."""
    lines = [f"{name.replace('_', '-')} {words}" for name, words in EXAMPLES.items()]
    lines = [line.replace(" s0", f" {seed}") if seed else line for line in lines]
    word = start.strip().partition(" ")[0]
    return [line for line in lines if line.startswith(word)]


@cache
def _grammar() -> Callable[[list[str], list[Operation]], None]:
    """Made once: it imports what `esper publish` does."""
    into: list[list[Operation]] = []
    command: Any = get_command(build(lambda operation: into[-1].append(operation)))

    def read(words: list[str], found: list[Operation]) -> None:
        into.append(found)
        try:
            command.main(words, "publish", standalone_mode=False)
        except UsageError as error:
            expected = " ".join(usage_sentence(error).split()) or EXPECTED
            raise SettingError("command", shlex.join(words), expected) from None
        finally:
            into.clear()

    return read
