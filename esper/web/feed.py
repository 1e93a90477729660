"""What one reader says to many browsers: numbered frames, a bounded queue for each, and who is slow is let go."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

MOST_WAITING = 32
"""Frames that may wait for one browser: eight seconds at four a second."""
NUM_KEPT = 128
"""Frames that a browser which was away can still be given, half a minute's; else it is given everything anew."""

MOST_MISSED_BYTES = 1 << 20
"""Of those, to be said again; a thousand seeds fill as much in a second."""

COMMENT = b": here\n\n"
SNAPSHOT, CHANGE = "snapshot", "change"


class Subscriber:
    """One browser's queue. Ends where the feed ends, or where it was full: then the browser asks anew."""

    def __init__(self, most_waiting: int) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(most_waiting + 1)
        self._most = most_waiting
        self.gone = False

    def offer(self, frame: bytes) -> None:
        """Take a frame, or go."""
        if self.gone:
            return
        if self._waiting.qsize() >= self._most:
            self.go()
        else:
            self._waiting.put_nowait(frame)

    def go(self) -> None:
        """Nothing is offered after this; what waits is left out."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self.finish()

    def finish(self) -> None:
        """Nothing is offered after this; what waits is said."""
        self.gone = True
        self._waiting.put_nowait(None)

    async def frames(self) -> AsyncIterator[bytes]:
        """As they come."""
        while (frame := await self._waiting.get()) is not None:
            yield frame


class Feed:
    """Frames under ids that go up. Knows nothing of what they say, nor of HTTP."""

    def __init__(self, everything: Callable[[], Mapping[str, Any]], most_waiting: int = MOST_WAITING) -> None:
        self._everything, self._most_waiting = everything, most_waiting
        self._name = secrets.token_hex(4)  # a server that was started anew begins at 0 again
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=NUM_KEPT)
        self.subscribers: set[Subscriber] = set()
        self._snapshot = (-1, b"")
        self.ended = False

    def publish(self, said: Mapping[str, Any]) -> None:
        """Offer a change to everybody."""
        self._number += 1
        frame = framed(CHANGE, self._id, said)
        self._kept.append((self._number, frame))
        for subscriber in [*self.subscribers]:
            subscriber.offer(frame)
            if subscriber.gone:
                self.subscribers.discard(subscriber)

    def keep_alive(self) -> None:
        """A comment, so that whoever stands between keeps the connection, and a browser that is gone is noticed."""
        for subscriber in [*self.subscribers]:
            subscriber.offer(COMMENT)

    def subscribe(self, last_event_id: str = "") -> Subscriber:
        """From behind the frame of this id, where all since is kept; else a snapshot first."""
        missed = self._since(last_event_id)
        if missed is not None and sum(map(len, missed)) > MOST_MISSED_BYTES:
            missed = None  # the snapshot is one for all who ask, what each has missed is not
        subscriber = Subscriber(self._most_waiting)
        if first := self._whole() if missed is None else b"".join(missed):  # as one, however much there was
            subscriber.offer(first)
        if self.ended:
            subscriber.finish()
        else:
            self.subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """It is offered nothing more."""
        self.subscribers.discard(subscriber)

    def end(self) -> None:
        """Let everybody go, also who comes later."""
        self.ended = True
        for subscriber in self.subscribers:
            subscriber.finish()
        self.subscribers.clear()

    @property
    def _id(self) -> str:
        return f"{self._name}-{self._number}"

    def _whole(self) -> bytes:
        """Made once for all who ask between two changes. What has not been published yet may be in it: it is said
        again, which a page takes."""
        if self._snapshot[0] != self._number:
            self._snapshot = (self._number, framed(SNAPSHOT, self._id, self._everything()))
        return self._snapshot[1]

    def _since(self, last_event_id: str) -> list[bytes] | None:
        """Frames after this one; None: it is not one of ours, or too long ago."""
        name, _, number = last_event_id.rpartition("-")
        if name != self._name or not number.isdecimal() or len(number) > 18 or int(number) > self._number:
            return None
        missed = [frame for at, frame in self._kept if at > int(number)]
        return missed if len(missed) == self._number - int(number) else None


def framed(event: str, event_id: str, said: Mapping[str, Any]) -> bytes:
    """One event by the rules of text/event-stream. JSON has no line ends of its own, so that it is one data line."""
    data = json.dumps(said, separators=(",", ":"), allow_nan=False)
    return f"id: {event_id}\nevent: {event}\ndata: {data}\n\n".encode()
