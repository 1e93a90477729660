"""Which ranks a collective failed for: found out once it has, so that nothing is said while all goes well."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

PATIENCE = timedelta(seconds=5)  # by then all have failed that waited in it, and entered it about when the others did


def absent(group: dist.ProcessGroup, collective: str) -> str:
    """In words. Each rank calls it that failed in the collective of this name; those that do not are the absent ones.

    Of two ranks it is the other one, and nobody waits to be told.
    """
    peers = [rank for rank in range(group.size()) if rank != group.rank()]
    if len(peers) > 1:
        peers = _silent(group, collective, peers) or peers
    return f"rank {peers[0]}" if len(peers) == 1 else f"ranks {', '.join(map(str, peers))}"


def _silent(group: dist.ProcessGroup, collective: str, peers: list[int]) -> list[int]:
    """Those of them that do not say that they failed in it too; none where nobody can be asked."""
    store = group.get_group_store()
    with suppress(RuntimeError):  # the store has ended with the rank that held it
        count = store.add(f"failed/{collective}/{group.rank()}", 1)  # attach() may be called again
        said = {rank: f"failed/{collective}/{rank}/{count}" for rank in range(group.size())}
        store.set(said.pop(group.rank()), "failed")
        with suppress(RuntimeError):  # not all have
            store.wait(list(said.values()), PATIENCE)
        return [rank for rank, key in said.items() if not store.check([key])]
    return []
