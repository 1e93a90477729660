"""Which release this code is, also where it is not installed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__version__ = "0.1.0"
PACKAGES = ("kasmina", "kernels", "leyline", "session", "tolaria")
"""By what these do a run comes to its parameters, and what its ranks say to one another has no number on it."""


@cache
def running() -> str:
    """Esper's version, and the beginning of a digest of the code, which changes where that number does not."""
    from importlib.resources import files  # half of what `import esper` would take

    return f"Esper {__version__} ({_digest(files('esper'))[:12]})"


def _digest(root: Traversable) -> str:
    """Of a folder, or of what an archive holds: code may be imported from one."""
    from hashlib import sha256

    said = sha256()
    found = (each for package in PACKAGES for each in _sources(root.joinpath(package), (package,)))
    for path, file in sorted(found, key=lambda each: each[0]):
        content = file.read_bytes()
        said.update(f"{'/'.join(path)} {len(content)}\n".encode() + content)
    return said.hexdigest()


def _sources(folder: Traversable, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Traversable]]:
    """Every module below it. An editor's lock on one, a link to nothing, has its name and is no file."""
    for each in folder.iterdir():
        at = (*path, each.name)
        if each.is_dir():
            yield from _sources(each, at)
        elif each.name.endswith(".py") and each.is_file():
            yield at, each
