"""Floods a stream with what no key has sealed, at a steady rate, on one connection. Holds no key."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis

from esper.bus import names
from esper.leyline.envelope import MAGIC
from tests.faults.history import History
from tests.faults.roles import arguments

BURST = 20  # requests in one write: more of them hold the server up for longer
NUM_BURSTS = 100  # made before it begins, then sent in turn: making them would cost more than Redis has to spare
MOST_UNANSWERED = 8 * BURST
NOTED_EVERY_S = 0.1
MOST_MADE_UP_S = 0.005
"""Of time in which it did not run: what a scheduler takes now and then, not a pause. Two thousand messages that a pause
has kept back would come at once, at no rate that was asked for."""


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """How fast it floods which stream."""

    per_s: float
    seed: int
    stream: str = "commands"


class Line:
    """Requests out, and how many of them were answered. Anything but an entry's id as an answer is a failure."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.num_sent = connection, 0
        self._num_lines = 0

    @property
    def num_answered(self) -> int:
        return self._num_lines // 2  # the length of an id, and the id

    def send(self, burst: bytes) -> None:
        self.connection.sendall(burst)
        self.num_sent += BURST
        while self.num_sent - self.num_answered > MOST_UNANSWERED:
            replies = self.connection.recv(1 << 16)
            assert replies and b"\n-" not in replies, f"Redis answered {replies[:200]!r}"
            self._num_lines += replies.count(b"\n")


def main() -> None:
    told = Told.begin("flooder")
    stream, chance = names.key(told.run, told.stream), random.Random(told.seed)
    genuine = envelopes(told.url, stream)
    bursts = [b"".join(request(stream, junk(genuine, chance)) for _ in range(BURST)) for _ in range(NUM_BURSTS)]
    with told.history() as history, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(urlsplit(told.url).path)
        history.note("ready")
        flood(Line(connection), bursts, told.per_s, history)


def envelopes(url: str, stream: str) -> list[bytes]:
    """What anybody finds who can read the stream."""
    with redis.Redis.from_url(url) as client:
        entries: Any = client.xrevrange(stream, count=64)
    assert entries, f"{stream} holds nothing to be forged"
    return [fields[b"m"] for _, fields in entries]


def junk(genuine: Sequence[bytes], chance: random.Random) -> bytes:
    """Random bytes, an envelope cut short, or one with a bit flipped, not in the names that say which key it needs:
    what an unknown key sealed may have been good in its time, and is not deleted. Nor is what begins as an envelope of
    another version, as one random piece in 65,536 does."""
    sealed = bytearray(chance.choice(genuine))
    kind = chance.randrange(3)
    if kind == 0:
        drawn = chance.randbytes(chance.randrange(1, 2 * len(sealed)))
        return junk(genuine, chance) if drawn.startswith(MAGIC) else drawn
    if kind == 1:
        return bytes(sealed[: chance.randrange(1, len(sealed))])
    sealed[chance.randrange(len(sealed) // 2, len(sealed))] ^= 1 << chance.randrange(8)
    return bytes(sealed)


def request(stream: str, body: bytes) -> bytes:
    """An XADD as it stands on the wire."""
    words = (b"XADD", stream.encode(), b"*", b"m", body)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def flood(line: Line, bursts: Sequence[bytes], per_s: float, history: History) -> None:
    """Until it is killed. Time that it was paused is not made up for."""
    interval_s, number, noted, noted_at_s = BURST / per_s, 0, 0, time.monotonic()
    due_s = noted_at_s
    while True:
        line.send(bursts[number % len(bursts)])
        number += 1
        now_s = time.monotonic()
        if now_s >= noted_at_s + NOTED_EVERY_S:
            history.note("flooded", num=line.num_answered - noted)
            noted, noted_at_s = line.num_answered, now_s
        due_s = max(due_s + interval_s, now_s - MOST_MADE_UP_S)
        time.sleep(max(0.0, due_s - now_s))


if __name__ == "__main__":
    main()
