"""Below which entry each log of a run is needed by nobody: all that is older is in every rank's oldest checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from esper.bus.connect import Redis
from esper.bus.group.groups import groups_of
from esper.bus.names import LOGGED, STREAMS, key, shown
from esper.leyline.entries import entry_order

DECISIONS = "decisions"
NOWHERE = "0-0"

Positions = Mapping[str, str]


def kept_key(run_id: str) -> str:
    """Hash of where the logs stood at the oldest checkpoint of each worker."""
    return key(run_id, "kept")


def encoded(positions: Positions) -> bytes:
    """A field of that hash."""
    return json.dumps(dict(positions)).encode()


async def floors_of(redis: Redis, run_id: str, workers: Sequence[str], kept_from: str) -> dict[str, str]:
    """By log, the entry that it may be trimmed below; nothing where one of these has no checkpoint yet.

    From `kept_from` on decisions stay in any case. Receipts and emergencies have no position of their own: they go with
    what was decided before their time.
    """
    stored: Any = await redis.hgetall(kept_key(run_id))
    known = {shown(name): _decoded(value) for name, value in stored.items()}
    if not workers or any(not known.get(worker, {}).get(DECISIONS) for worker in workers):
        return {}
    positions = [known[worker] for worker in workers]
    floors = {row.name: _lowest(each.get(row.name, NOWHERE) for each in positions) for row in STREAMS if row.positioned}
    floors[DECISIONS] = _lowest([floors[DECISIONS], kept_from])
    when = f"{floors[DECISIONS].partition('-')[0]}-0"
    floors |= {row.name: when for row in STREAMS if row.trimming == LOGGED and not row.positioned}
    return {name: floor for name, floor in floors.items() if entry_order(floor) > (0, 0)}


async def workers_of(redis: Redis, run_id: str) -> list[str]:
    """Those with a group on `:decisions`: whoever follows the run, or will."""
    return [shown(group["name"]) for group in await groups_of(redis, key(run_id, DECISIONS))]


def _lowest(entry_ids: Iterable[str]) -> str:
    return min(entry_ids, key=entry_order)


def _decoded(value: bytes) -> Positions:
    """Empty for what no worker has written: then nothing is trimmed."""
    try:
        positions = {str(name): str(position) for name, position in json.loads(value).items()}
        return {name: position for name, position in positions.items() if entry_order(position)}
    except (ValueError, AttributeError):
        return {}
