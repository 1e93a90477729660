"""Pools of what is made again and again: by bytes, the least recently given leaves first, nothing stays for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cachetools import TTLCache

from esper.errors import SettingError

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


@dataclass(slots=True)
class PoolStats:
    """Totals since the pool was made. What was given is pooled still, or was taken (a hit), evicted or expired."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0  # for want of room, or cleared
    expired: int = 0
    refused: int = 0  # larger than the whole pool


class Pool(Generic[Key, Item]):
    """Items of equal key are interchangeable; whoever takes one owns it. Knows no devices and no threads."""

    def __init__(
        self, max_bytes: int, ttl_s: float, size_of: Callable[[Item], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Holds at most `max_bytes` by `size_of`, each item for at most `ttl_s` seconds of `clock`."""
        if max_bytes <= 0 or not ttl_s > 0:
            name, value = ("max_bytes", max_bytes) if max_bytes <= 0 else ("ttl_s", ttl_s)
            raise SettingError(f"pool {name}", value, "a number above 0")
        self.stats = PoolStats()
        self._size_of = size_of
        self._shelf: _Shelf[Key, Item] = _Shelf(max_bytes, ttl_s, clock, size_of)
        self._num_given = 0

    @property
    def num_bytes(self) -> int:
        """Bytes held now."""
        self.expire()
        return int(self._shelf.currsize)

    def __len__(self) -> int:
        self.expire()
        return len(self._shelf)

    def __contains__(self, key: Key) -> bool:
        """Whether take() would find one."""
        self.expire()
        return key in self._shelf.serials

    def take(self, key: Key) -> Item | None:
        """The item given last under this key; None where there is none."""
        with self._shelf.timer:  # stands still within: nothing expires between two lines
            self.expire()
            pair = self._shelf.taken(key)
        if pair is None:
            self.stats.misses += 1
            return None
        self.stats.hits += 1
        return pair[1]

    def give(self, key: Key, item: Item) -> bool:
        """Offer an item that nobody else holds; False where it is larger than the whole pool."""
        size = self._size_of(item)
        if size > self._shelf.maxsize:
            self.stats.refused += 1
            return False
        with self._shelf.timer:
            self.expire()
            while self._shelf.currsize + size > self._shelf.maxsize:
                self._shelf.popitem()
                self.stats.evicted += 1
            self._num_given += 1
            self._shelf[self._num_given] = (key, item)
        return True

    def expire(self) -> None:
        """Let go of what has been here for too long; also done by every other call."""
        self.stats.expired += len(self._shelf.expire())

    def clear(self) -> None:
        """Let go of everything."""
        with self._shelf.timer:
            self.expire()
            self.stats.evicted += len(self._shelf)
            while len(self._shelf):
                self._shelf.popitem()


class _Shelf(TTLCache[int, Any], Generic[Key, Item]):
    """Pairs (key, item) by serial number, with the serials of each key in order."""

    def __init__(self, maxsize: int, ttl: float, clock: Callable[[], float], size_of: Callable[[Item], int]) -> None:
        super().__init__(maxsize, ttl, timer=clock, getsizeof=lambda pair: size_of(pair[1]))
        self.serials: dict[Key, dict[int, None]] = {}

    def __setitem__(self, serial: int, pair: tuple[Key, Item], *args: Any) -> None:
        super().__setitem__(serial, pair, *args)
        self.serials.setdefault(pair[0], {})[serial] = None

    def __delitem__(self, serial: int, *args: Any) -> None:
        self._forget(serial, self[serial])
        super().__delitem__(serial, *args)

    def taken(self, key: Key) -> tuple[Key, Item] | None:
        """The newest pair of a key, which leaves; half of the time that pop() takes, which looks it up three times."""
        serials = self.serials.get(key)
        if not serials:
            return None
        serial = next(reversed(serials))
        pair: tuple[Key, Item] = self[serial]
        self._forget(serial, pair)
        super().__delitem__(serial)
        return pair

    def expire(self, time: float | None = None) -> list[tuple[int, Any]]:
        gone = list(super().expire(time))
        for serial, pair in gone:
            self._forget(serial, pair)
        return gone

    def _forget(self, serial: int, pair: tuple[Key, Item]) -> None:
        serials = self.serials[pair[0]]
        del serials[serial]
        if not serials:
            del self.serials[pair[0]]
