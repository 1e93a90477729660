"""Which ranks a collective failed for: found out once it has, so that nothing is said while all goes well."""

from __future__ import annotations

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
    try:
        store.set(_key(collective, group.rank()), "failed")
        store.wait([_key(collective, rank) for rank in peers], PATIENCE)
    except RuntimeError:  # not all have, or the store has ended with the rank that held it
        try:
            return [rank for rank in peers if not store.check([_key(collective, rank)])]
        except RuntimeError:
            return []
    return []


def _key(collective: str, rank: int) -> str:
    return f"failed/{collective}/{rank}"
