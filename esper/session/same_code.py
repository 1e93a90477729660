"""Refuses ranks of one process group that run different code: one would misread what another one says."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

from esper.errors import SettingError, TrainingError
from esper.tolaria.missing_ranks import absent
from esper.version import running as running

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
