"""What the processes of a run count, put where a person can ask for it: one field each of one hash. Only to look at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from esper.bus.connect import Redis
from esper.bus.names import key

STALE_MS = 60_000  # a process writes every ten seconds or sooner
FORGOTTEN_MS = 600_000


@dataclass(frozen=True, slots=True)
class Count:
    """One counter of one process, since it began: named and labelled as its metric is."""

    name: str
    labels: Mapping[str, str]
    value: float


async def publish(redis: Redis, run_id: str, process: str, counts: Iterable[Count], now_ms: int) -> None:
    """Replace what this process has said."""
    said = {"at_ms": now_ms, "counts": [[one.name, dict(one.labels), one.value] for one in counts]}
    await redis.execute_command("HSET", key(run_id, "counters"), process, json.dumps(said))


async def read(redis: Redis, run_id: str, now_ms: int) -> dict[str, list[Count]]:
    """What each process said within the last minute; one that is gone, or says anything else, is left out."""
    said = await _said(redis, run_id)
    return {process: _counts(told) for process, told in said.items() if now_ms - _at_ms(told) < STALE_MS}


async def forget_gone(redis: Redis, run_id: str, now_ms: int) -> int:
    """Delete what processes said that have been gone for ten minutes; how many those were."""
    said = await _said(redis, run_id)
    gone = [process for process, told in said.items() if now_ms - _at_ms(told) > FORGOTTEN_MS]
    return int(await redis.execute_command("HDEL", key(run_id, "counters"), *gone)) if gone else 0


async def _said(redis: Redis, run_id: str) -> dict[str, Any]:
    fields: Any = await redis.hgetall(key(run_id, "counters"))
    return {process.decode(errors="replace"): _parsed(text) for process, text in fields.items()}


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _at_ms(told: Any) -> int:
    at_ms = told.get("at_ms") if isinstance(told, dict) else None
    return at_ms if isinstance(at_ms, int) else 0


def _counts(told: Any) -> list[Count]:
    rows = told.get("counts")
    return [
        Count(str(row[0]), {str(name): str(value) for name, value in row[1].items()}, float(row[2]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 3 and isinstance(row[1], dict) and _is_count(row[2])
    ]


def _is_count(value: Any) -> bool:
    """Whether it is a number that a counter can have; whole ones may have any number of digits in JSON."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**64)
