"""Refuses ranks of one process group that run different code: one would misread what another one says."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import cache
from pathlib import Path

import torch.distributed as dist

from esper.errors import SettingError, TrainingError
from esper.tolaria.absent import absent
from esper.version import __version__

PACKAGES = ("kasmina", "kernels", "leyline", "session", "tolaria")
"""What ranks say to one another in collectives is theirs, and has no number of a version on it."""
PATIENCE = timedelta(seconds=60)  # all are in attach() by then: they have made a group


def require_same_code(group: dist.ProcessGroup) -> None:
    """SettingError, naming both versions, where another rank runs other code; TrainingError where one does not say.

    All ranks call it.
    """
    store, mine = group.get_group_store(), running()
    keys = [f"code/{rank}" for rank in range(group.size())]
    try:
        store.set(keys[group.rank()], mine)
        store.wait(keys, PATIENCE)
        said = [store.get(key).decode() for key in keys]
    except RuntimeError as error:
        raise TrainingError(
            f"{absent(group, 'code')} did not say within {PATIENCE.total_seconds():g} s what code it runs, as {mine} "
            f"does in attach(); code from before 2026-11-23 never says it: {error}"
        ) from error
    for rank, its in enumerate(said):
        if its != mine:
            raise SettingError("version", mine, f"that of rank {rank}, {its}: a process group runs one")


@cache
def running() -> str:
    """Esper's version, and the beginning of a digest of the code, which changes where that number does not."""
    return f"Esper {__version__} ({_digest(Path(__file__).parents[1])[:12]})"


def _digest(root: Path) -> str:
    said = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        said.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return said.hexdigest()
