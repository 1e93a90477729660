"""Messages at a steady rate between two processes, each timed from the moment it was due to the call of its handler."""

from __future__ import annotations

import asyncio
import hmac
import os
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from bus_arms.ours import noting, reading
from bus_arms.streams import CONSUMER, GROUP, check_handled, plain, server_forks as server_forks
from bus_arms.traffic import BATCH, KEY, RUN, SEALED_BY, message, number_and_time, opener, sealer
from esper.bus import connect, names
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.publisher import Publisher
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened
from esper.runtime.serving.loop import serve

PATIENCE_S = 30.0
TELEMETRY_NICE = 10
NUMBER_AND_TIME = struct.Struct(">QQ")
BARE = "bare:paced"
SIZE = 226  # of the bare message: that of a sealed packet


async def listen(url: str, directory: str, what: str, num: int, seconds: float) -> list[float]:
    """Milliseconds of each message, once all have been handled."""
    met: list[tuple[int, float]] = []
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        inbox = Inbox(reader, writer, names.key(RUN, what), GROUP, CONSUMER, Pace(count=BATCH))

        def handle(opened: Opened) -> Iterable[tuple[str, bytes]]:
            number, due_ns = number_and_time(opened.message)
            met.append((number, (time.monotonic_ns() - due_ns) / 1e6))
            if len(met) == num:
                inbox.stop()
            return ()

        read = await reading(opener(directory, what, ReplayGuard()), writer)
        async with asyncio.timeout(seconds + PATIENCE_S):
            await serve(inbox, read, handle, Outbox(writer))
    check_handled([number for number, _ in met], num)
    return [taken_ms for _, taken_ms in met]


async def send(url: str, directory: str, what: str, num: int, seconds: float, after_s: float = 0.0) -> None:
    """Publish `num` messages, spread evenly, each awaited."""
    time.sleep(after_s)
    by, stream = sealer(directory, SEALED_BY[what]), names.key(RUN, what)
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)

        async def publish(number: int, due_ns: int) -> None:
            await publisher.add(stream, by.seal(message(what, number, due_ns)))

        await paced(publish, num, seconds)


async def paced(publish: Callable[[int, int], Awaitable[object]], num: int, seconds: float) -> None:
    """One call at each due time, or as soon after as the one before it has ended; the delay counts.

    The thread sleeps, because a timer of the loop is only as fine as a millisecond; nothing else runs in this process.
    """
    began_ns, step_ns = time.monotonic_ns(), int(seconds * 1e9 / num)
    for number in range(1, num + 1):
        due_ns = began_ns + number * step_ns
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        await publish(number, due_ns)


async def bare_listen(url: str, directory: str, what: str, num: int, seconds: float) -> list[float]:
    """The same with the client's own loop and one HMAC."""
    met: list[tuple[int, float]] = []
    async with plain(url) as redis, asyncio.timeout(seconds + PATIENCE_S):
        while len(met) < num:
            reply: Any = await redis.xreadgroup(GROUP, CONSUMER, {BARE: ">"}, count=BATCH, block=500)
            entries = reply[0][1] if reply else []
            for _, fields in entries:
                hmac.digest(KEY, fields[b"m"], "sha256")
                number, due_ns = NUMBER_AND_TIME.unpack_from(fields[b"m"])
                met.append((number, (time.monotonic_ns() - due_ns) / 1e6))
            if entries:
                await redis.xack(BARE, GROUP, *[entry_id for entry_id, _ in entries])
    check_handled([number for number, _ in met], num)
    return [taken_ms for _, taken_ms in met]


async def bare_send(url: str, directory: str, what: str, num: int, seconds: float) -> None:
    async with plain(url) as redis:

        async def publish(number: int, due_ns: int) -> None:
            body = NUMBER_AND_TIME.pack(number, due_ns).ljust(SIZE, b"\0")
            hmac.digest(KEY, body, "sha256")
            await redis.xadd(BARE, {b"m": body})

        await paced(publish, num, seconds)


async def prepare(url: str, directory: str) -> None:
    """Empty streams, each with its group."""
    async with plain(url) as redis:
        for stream in (BARE, names.key(RUN, "packet"), names.key(RUN, "command")):
            await redis.unlink(stream)
            await redis.xgroup_create(stream, GROUP, id="0", mkstream=True)


async def listening(url: str, directory: str) -> None:
    """Return once a listener waits for its first message: what is sent before that would wait for it to start."""
    async with plain(url) as redis, asyncio.timeout(PATIENCE_S):
        while not (await redis.info("clients"))["blocked_clients"]:
            await asyncio.sleep(0.005)


def yield_to_others() -> None:
    """The command's way through the server is measured, not how many cores there are for five processes."""
    os.setpriority(os.PRIO_PROCESS, 0, TELEMETRY_NICE)


async def flood(url: str, directory: str, seconds: float) -> int:
    """How many sealed packets one process adds in that time, a pipeline at a time, as fast as it can."""
    yield_to_others()
    by, stream, number = sealer(directory, SEALED_BY["packet"]), names.key(RUN, "packet"), 0
    ends = time.monotonic() + seconds
    async with connect.writer(url) as writer:
        publisher = Publisher(writer)
        while time.monotonic() < ends:
            sealed = [by.seal(message("packet", number + at, time.time_ns())) for at in range(1, BATCH + 1)]
            await publisher.add_many(stream, sealed)
            number += BATCH
    return number


async def drain(url: str, directory: str, seconds: float) -> int:
    """How many of those packets another process handles in that time."""
    yield_to_others()
    met: list[int] = []
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        inbox = Inbox(reader, writer, names.key(RUN, "packet"), GROUP, CONSUMER, Pace(count=BATCH))
        asyncio.get_running_loop().call_later(seconds, inbox.stop)
        await serve(
            inbox, await reading(opener(directory, "packet", ReplayGuard()), writer), noting(met), Outbox(writer)
        )
    return len(met)


async def ran_and_waited_s(url: str, directory: str, of_server: bool = False) -> list[float]:
    """How long this process, or the server, has run so far, and how long it could have and had no processor.

    Nothing where the kernel does not tell.
    """
    process = "self"
    if of_server:
        async with plain(url) as redis:
            process = str((await redis.info("server"))["process_id"])
    told = Path(f"/proc/{process}/schedstat")
    return counted_s(told.read_text()) if told.exists() else []


def counted_s(schedstat: str) -> list[float]:
    """What the kernel says there of running and of waiting; one that does not count says zeros."""
    ran_and_waited = [int(nanoseconds) / 1e9 for nanoseconds in schedstat.split()[:2]]
    return ran_and_waited if any(ran_and_waited) else []


async def server_seconds(url: str, directory: str) -> float:
    """Processor time that the server has used so far."""
    async with plain(url) as redis:
        facts: Any = await redis.info("cpu")
        return float(facts["used_cpu_user_main_thread"]) + float(facts["used_cpu_sys_main_thread"])
