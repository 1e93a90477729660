"""The server's limit: redis-benchmark with a payload of the same size, as deep a pipeline, and no Python at all."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from bus_arms.streams import ADD_NUMBERED, ADD_SAME, CONSUMER, GROUP
from bus_arms.traffic import BATCH, FULL_READ
from esper.bench.rounds.part import PartError

TOOL = "redis-benchmark"
MISSING = f"{TOOL} not on PATH"
STREAM = "limit"
LEAST = 50_000  # messages: it counts whole milliseconds
DEPTH = 4  # reads, or acknowledgements, under way at once: each is of a whole batch


def num_of(num: int) -> int:
    """Its slices are longer than those of other arms."""
    return max(LEAST, 10 * num)


def is_here() -> bool:
    return shutil.which(TOOL) is not None


def per_second(url: str, *command: str | int, num: int, depth: int, random_below: int = 1) -> float:
    """Requests per second of one connection. __rand_int__ in the command: twelve digits, drawn anew each time."""
    socket = url.removeprefix("unix://")
    amounts = ("-c", 1, "-P", depth, "-n", num, "-r", random_below)
    words = [TOOL, "-s", socket, *amounts, "--csv", *command]
    answer = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if answer.returncode:
        raise PartError(TOOL, f"ended with status {answer.returncode}: {answer.stderr.strip()}")
    *_, row = csv.reader(answer.stdout.splitlines())
    return float(row[1])


@contextmanager
def stream_of(url: str, script: str, *arguments: object) -> Iterator[Redis]:
    with Redis.from_url(url, socket_timeout=None) as redis:
        redis.unlink(STREAM)
        redis.eval(script, 1, STREAM, *map(str, arguments))
        redis.xgroup_create(STREAM, GROUP, id="0")
        yield redis
        redis.unlink(STREAM)


def publish(url: str, size: int, num: int) -> float:
    """Messages added per second."""
    with stream_of(url, ADD_SAME, 1, "x" * size) as redis:
        rate = per_second(url, "XADD", STREAM, "*", "m", "x" * size, num=num, depth=BATCH)
        assert redis.xlen(STREAM) >= num
        return rate


def consume(url: str, size: int, num: int) -> float:
    """Messages read per second by a group, from reads of a batch each, and acknowledged."""
    num_reads = num // FULL_READ
    with stream_of(url, ADD_NUMBERED, 1, num_reads * FULL_READ, "x" * size):
        read = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", FULL_READ, "STREAMS", STREAM, ">")
        reads = per_second(url, *read, num=num_reads, depth=DEPTH)
        ids = ["__rand_int__"] * FULL_READ  # a third of them were acknowledged before, as it turns out
        acks = per_second(
            url, "XACK", STREAM, GROUP, *ids, num=num_reads, depth=DEPTH, random_below=num_reads * FULL_READ
        )
    return FULL_READ / (1 / reads + 1 / acks)
