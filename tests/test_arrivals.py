"""Several readers hand batches to one loop, and go on reading when it has gone a step further."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from esper.bus.group.delivery import Delivery
from esper.runtime.serving.arrivals import Arrivals

LONG_S = 60.0


def batch(stream: str, *numbers: int) -> list[Delivery]:
    return [Delivery(stream, "group", f"{number}-0", b"", 1) for number in numbers]


def begun(arrivals: Arrivals, given: Sequence[Delivery]) -> asyncio.Task[None]:
    return asyncio.create_task(arrivals.put(given))


async def turn() -> None:
    """Until every task has gone as far as it can by itself."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_several_readers_were_handed_is_taken_together_and_once() -> None:
    arrivals = Arrivals()
    votes, commands = begun(arrivals, batch("votes", 1, 2)), begun(arrivals, batch("commands", 3))
    await turn()

    taken = await arrivals.taken(LONG_S)

    assert taken == [*batch("votes", 1, 2), *batch("commands", 3)]
    assert await arrivals.taken(0.001) == []
    arrivals.go_on()
    await asyncio.gather(votes, commands)


async def test_a_reader_waits_until_the_loop_has_gone_a_step_further() -> None:
    arrivals = Arrivals()
    reader = begun(arrivals, batch("votes", 1))
    await turn()
    await arrivals.taken(LONG_S)
    await turn()
    assert not reader.done()

    arrivals.go_on()

    await reader


async def test_a_loop_that_waits_is_woken_by_the_first_batch() -> None:
    arrivals = Arrivals()
    loop = asyncio.create_task(arrivals.taken(LONG_S))
    await turn()

    reader = begun(arrivals, batch("votes", 1))

    assert await loop == batch("votes", 1)
    reader.cancel()


async def test_after_its_time_the_loop_goes_on_with_nothing() -> None:
    assert await Arrivals().taken(0.001) == []


async def test_a_reader_that_is_cancelled_holds_nobody_up() -> None:
    arrivals = Arrivals()
    first, second = begun(arrivals, batch("votes", 1)), begun(arrivals, batch("votes", 2))
    await turn()
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first

    arrivals.go_on()

    await second
    assert await arrivals.taken(LONG_S) == batch("votes", 1, 2)


async def test_a_loop_that_was_cancelled_leaves_what_arrives_to_the_next_one() -> None:
    arrivals = Arrivals()
    loop = asyncio.create_task(arrivals.taken(LONG_S))
    await turn()
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop

    reader = begun(arrivals, batch("votes", 1))
    await turn()

    assert await arrivals.taken(LONG_S) == batch("votes", 1)
    reader.cancel()
