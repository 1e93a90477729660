"""A client keeps its connection between commands, and never reads one command's answer as another's."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
import redis as library
from redis.asyncio import UnixDomainSocketConnection

from esper.bus.client.line import Streamed, line_of
from esper.bus.connect import Redis, writer
from esper.bus.faults import LostError, NoGroupError
from tests.bus_kit import own_server

ID = ("CLIENT", "ID")


async def test_commands_one_after_the_other_go_over_one_connection(redis: Redis) -> None:
    first = await redis.ask(ID)

    assert [await redis.ask(ID), *await redis.ask_all([ID, ID])] == [first] * 3


async def test_commands_at_once_go_over_several_which_are_then_used_again(redis: Redis) -> None:
    at_once = set(await asyncio.gather(*(redis.ask(ID) for _ in range(3))))

    again = set(await asyncio.gather(*(redis.ask(ID) for _ in range(3))))

    assert len(at_once) == 3
    assert again == at_once


async def test_one_that_the_server_closed_meanwhile_is_opened_anew(redis: Redis, redis_reader: Redis) -> None:
    closed = await redis.ask(ID)

    await redis_reader.ask(("CLIENT", "KILL", "ID", closed))
    await redis_reader.ask(("PING",))  # what the server sent before its answer has arrived

    assert await redis.ask(ID) != closed


async def test_the_answer_to_a_command_that_was_given_up_is_nobodys(redis: Redis, redis_reader: Redis) -> None:
    await redis.ask(("PING",))
    blocked = asyncio.create_task(redis.ask(("BLPOP", "nothing-here", "0")))
    while not any(b"cmd=blpop" in each for each in (await redis_reader.ask(("CLIENT", "LIST"))).split(b"\n")):
        assert not blocked.done()

    blocked.cancel()
    await asyncio.wait([blocked])

    assert await redis.ask(("PING",)) == b"PONG"


async def test_after_an_error_the_next_answer_is_that_of_the_next_command(redis: Redis, run_id: str) -> None:
    with pytest.raises(NoGroupError):
        await redis.ask_all([("XREADGROUP", "GROUP", "g", "c", "STREAMS", run_id, ">"), ("PING",)])

    assert await redis.ask(ID) == await redis.ask(ID)


async def test_a_client_that_was_closed_can_be_used_again(redis: Redis) -> None:
    before = await redis.ask(ID)

    await redis.aclose()

    assert await redis.ask(ID) != before


def test_what_the_library_says_of_itself_is_looked_up_once_for_all_connections(redis: Redis) -> None:
    first, second = (redis.connection_pool.make_connection() for _ in range(2))  # type: ignore[no-untyped-call]

    assert first.driver_info is second.driver_info
    assert first.driver_info.lib_version == library.__version__


@pytest.mark.parametrize("protocol", [2, 3])
async def test_an_error_costs_no_connection(redis: Redis, run_id: str, protocol: int) -> None:
    async with writer(f"{redis.url}?protocol={protocol}") as client:
        first = await client.ask(ID)

        with pytest.raises(NoGroupError):
            await client.ask_all([("XREADGROUP", "GROUP", "g", "c", "STREAMS", run_id, ">"), ("PING",)])

        assert await client.ask(ID) == first


@pytest.mark.parametrize("protocol", [2, 3])
async def test_one_refusal_for_now_among_several_errors_costs_the_connection(
    short_directory: Path, run_id: str, protocol: int
) -> None:
    with own_server(short_directory) as full:
        async with writer(f"{full.url}?protocol={protocol}") as client:
            await client.ask(("CONFIG", "SET", "maxmemory", "1"))
            first = await client.ask(ID)

            with pytest.raises(NoGroupError):
                await client.ask_all(
                    [("XREADGROUP", "GROUP", "g", "c", "STREAMS", run_id, ">"), ("XADD", run_id, "*", "f", "v"), ID]
                )

            assert await client.ask(ID) != first


async def test_an_answer_in_many_pieces_is_whole_and_in_order(redis: Redis, run_id: str) -> None:
    large = bytes(range(256)) * 8_192

    replies = await redis.ask_all([("SET", run_id, large), *[("ECHO", f"{at}") for at in range(600)], ("GET", run_id)])

    assert replies == [b"OK", *[b"%d" % at for at in range(600)], large]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_whoever_waits_on_a_connection_that_is_closed_hears_so_at_once(
    redis: Redis, redis_reader: Redis, protocol: int
) -> None:
    async with asyncio.timeout(120), writer(f"{redis.url}?protocol={protocol}") as waiting:
        at = await waiting.ask(ID)
        blocked = asyncio.create_task(waiting.ask(("BLPOP", "nothing-here", "0")))
        while b"cmd=blpop" not in await redis_reader.ask(("CLIENT", "LIST", "ID", at)):
            assert not blocked.done()

        await redis_reader.ask(("CLIENT", "KILL", "ID", at))

        with pytest.raises(LostError, match="cannot be reached"):
            await blocked
        assert await waiting.ask(("PING",)) == b"PONG"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_client_that_nobody_closes_leaves_no_connection_behind(
    redis: Redis, redis_reader: Redis, protocol: int
) -> None:
    async def dropped() -> int:
        at = int(await writer(f"{redis.url}?protocol={protocol}").ask(ID))
        gc.collect()
        return at

    with pytest.warns(ResourceWarning, match="unclosed") as told:  # asyncio says so first where the collector likes
        at = await dropped()
    assert any("unclosed Connection" in str(each.message) for each in told)

    async with asyncio.timeout(120):
        while await redis_reader.ask(("CLIENT", "LIST", "ID", str(at))):
            pass


@pytest.mark.parametrize("protocol", [2, 3])
async def test_who_is_cancelled_over_a_connection_that_broke_keeps_no_place_of_the_pool(
    redis: Redis, redis_reader: Redis, protocol: int
) -> None:
    async with writer(f"{redis.url}?protocol={protocol}") as narrow:
        narrow.connection_pool.max_connections = 1
        await redis_reader.ask(("CLIENT", "KILL", "ID", await narrow.ask(ID)))
        await redis_reader.ask(("PING",))

        cancelled = asyncio.create_task(narrow.ask(ID))
        asyncio.get_running_loop().call_soon(cancelled.cancel)  # at its first wait
        await asyncio.wait([cancelled])

        assert cancelled.cancelled()
        assert await narrow.ask(("PING",)) == b"PONG"


class Hesitant(UnixDomainSocketConnection):
    """Takes a turn of the loop to say whether something waits to be read."""

    async def can_read(self) -> bool:
        """As the library, later."""
        await asyncio.sleep(0)
        return await super().can_read()


async def test_who_is_cancelled_over_the_look_at_a_connection_keeps_no_place_of_the_pool(redis: Redis) -> None:
    async with writer(f"{redis.url}?protocol=3") as narrow:
        narrow.connection_pool.max_connections = 1
        narrow.connection_pool.connection_class = Hesitant
        first = await narrow.ask(ID)

        cancelled = asyncio.create_task(narrow.ask(ID))
        asyncio.get_running_loop().call_soon(cancelled.cancel)  # at its first wait, which is the look
        await asyncio.wait([cancelled])

        assert cancelled.cancelled()
        assert await narrow.ask(ID) == first


@pytest.mark.parametrize("option", ["socket_timeout=1", "health_check_interval=1"])
async def test_what_a_url_asks_of_the_library_is_left_to_the_library(redis: Redis, option: str) -> None:
    async with writer(f"{redis.url}?{option}") as asked:
        connection = await asked.connection_pool.get_connection()  # type: ignore[no-untyped-call]

        assert isinstance(line_of(connection), Streamed)


async def test_a_url_may_have_answers_in_less_time(redis: Redis) -> None:
    async with writer(f"{redis.url}?socket_timeout=0.1") as hasty:
        with pytest.raises(LostError, match="Timeout reading"):
            await hasty.ask(("BLPOP", "nothing-here", "5"))
