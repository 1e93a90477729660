"""What a user may do with the streams of a run, tried in ways that change nothing."""

from __future__ import annotations

from esper.bus.connect import Redis
from esper.bus.faults import UnavailableError
from esper.bus.names import STREAMS, Stream, key, region_key
from esper.doctor.facts import Rights
from esper.errors import BusError

ANY_REGION = "doctor"
NO_ENTRY = ("NOMKSTREAM", "0-0", "m", "")
"""Redis asks whether the user may, and then refuses the id: nothing is ever added under 0-0."""


async def rights_of(redis: Redis, run_id: str, user: str) -> Rights:
    """By one command for each stream and way. UnavailableError: the server went away meanwhile."""
    places = {row.name: place(run_id, row) for row in STREAMS}
    return Rights(
        user,
        adds=frozenset([name for name, at in places.items() if await may(redis, "XADD", at, *NO_ENTRY)]),
        reads=frozenset(
            [name for name, at in places.items() if await may(redis, "XRANGE", at, "-", "+", "COUNT", "1")]
        ),
    )


def place(run_id: str, row: Stream) -> str:
    return region_key(run_id, ANY_REGION, row.name) if row.regional else key(run_id, row.name)


async def may(redis: Redis, *words: str) -> bool:
    """Whether the server refuses it for another reason than the user's rights, or not at all."""
    try:
        await redis.ask(words)
    except UnavailableError:
        raise
    except BusError as error:
        return not is_refusal(error)
    return True


def is_refusal(error: BusError) -> bool:
    """Whether it says that the user may not, which Redis says in more than one sentence."""
    return "permission" in str(error)
