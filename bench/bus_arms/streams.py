"""Filling a stream before a slice, and looking at it afterwards; none of it is timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

GROUP, CONSUMER = "bench", "consumer-1"
CHUNK = 500
ADD = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], '*', 'm', ARGV[i]) end"
ADD_SAME = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'm', ARGV[2]) end"
ADD_NUMBERED = "for i = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], i .. '-0', 'm', ARGV[3]) end"


def plain(url: str) -> Redis:
    """The library's client at its quickest: without deadlines, and a command that fails fails."""
    return Redis.from_url(url, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0))


class SliceError(Exception):
    """A slice in which not every message was handled once."""


async def fill(url: str, stream: str, bodies: Sequence[bytes]) -> None:
    """A stream with nothing but these in it, and a group at its beginning."""
    async with plain(url) as redis:
        await redis.unlink(stream)
        for start in range(0, len(bodies), CHUNK):
            await redis.eval(ADD, 1, stream, *bodies[start : start + CHUNK])
        await redis.xgroup_create(stream, GROUP, id="0", mkstream=True)


async def server_forks(url: str, directory: str) -> int:
    """How often the server has forked to rewrite its AOF: it stands still meanwhile, and the child wants a core."""
    async with plain(url) as redis:
        return int((await redis.info("stats"))["total_forks"])


async def check_consumed(url: str, stream: str, handled: Sequence[object], num: int) -> None:
    """Each message handled once and acknowledged, or SliceError; then the stream goes."""
    async with plain(url) as redis:
        pending = (await redis.xpending(stream, GROUP))["pending"]
        await redis.unlink(stream)
    check_handled(handled, num)
    if pending:
        raise SliceError(f"left {pending} of {num} messages pending")


def check_handled(handled: Sequence[object], num: int) -> None:
    if (len(handled), len(set(handled))) != (num, num):
        raise SliceError(f"handled {len(handled)} messages, {len(set(handled))} different ones, of {num}")


async def check_published(url: str, stream: str, num: int) -> None:
    """Each message there once, or SliceError; then the stream goes."""
    async with plain(url) as redis:
        entries: Any = await redis.xrange(stream)
        await redis.unlink(stream)
    check_handled([fields[b"m"] for _, fields in entries], num)
