"""Names the extra that a command needs, where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from esper.errors import EsperError

LIBRARIES = {"top": ("textual",), "web": ("starlette", "uvicorn")}
"""Extra: what it brings, by import name."""


class MissingExtraError(EsperError):
    """A command was called whose libraries are not installed."""

    def __init__(self, command: str, extra: str) -> None:
        self.command, self.extra = command, extra
        super().__init__(f"{command} needs the extra '{extra}': pip install 'esper[{extra}]'")


def require(command: str, name: str) -> None:
    """MissingExtraError where a library of that extra is not installed; none is loaded."""
    if not all(map(find_spec, LIBRARIES[name])):
        raise MissingExtraError(command, name)
