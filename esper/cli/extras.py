"""Names the extra that a command needs, where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from esper.errors import EsperError

LIBRARIES = {
    "top": ("textual",),
    "web": ("starlette", "uvicorn"),
    "docs": ("mkdocs", "material"),
}
"""Extra: what it brings, by import name."""


class MissingExtraError(EsperError):
    """A command was called whose libraries are not installed."""

    def __init__(self, command: str, extra: str) -> None:
        self.command, self.extra = command, extra
        super().__init__(f"{command} needs the extra '{extra}': pip install 'esper[{extra}]'")


@contextmanager
def extra(command: str, name: str) -> Iterator[None]:
    """Around the imports of a command: MissingExtraError where what is missing is a library of that extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in LIBRARIES[name]:
            raise MissingExtraError(command, name) from None
        raise
