"""How much memory seeds may take together, and what happens when it runs short."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb


class Level(IntEnum):
    """How full a budget is."""

    FINE = 0
    WARN = 1
    EMERGENCY = 2


class Budget:
    """Bytes set aside by name. What pools hold counts as well until an emergency empties them.

    Equal amounts are refused alike on every rank: whether they fit depends on what was set aside, not on the pools.
    """

    def __init__(self, limit_bytes: int, *, warn: float = 0.85, emergency: float = 0.90) -> None:
        """`warn` and `emergency` are shares of the limit."""
        if limit_bytes <= 0:
            raise SettingError("budget limit_bytes", limit_bytes, "a number above 0")
        if not 0.0 < warn <= emergency <= 1.0:
            raise SettingError("budget warn, emergency", (warn, emergency), "shares of 1, warn not above emergency")
        self.limit_bytes, self.warn, self.emergency = limit_bytes, warn, emergency
        self.num_cleanups = 0
        self._held: dict[str, int] = {}
        self._pools: list[tuple[Callable[[], int], Callable[[], int]]] = []

    def watch(self, num_bytes: Callable[[], int], clear: Callable[[], int]) -> None:
        """Count what a pool holds, and clear it in an emergency; `clear` returns the bytes that it freed."""
        self._pools.append((num_bytes, clear))

    @property
    def used_bytes(self) -> int:
        return sum(self._held.values()) + sum(num_bytes() for num_bytes, _ in self._pools)

    @property
    def level(self) -> Level:
        share = self.used_bytes / self.limit_bytes
        return Level.EMERGENCY if share >= self.emergency else Level.WARN if share >= self.warn else Level.FINE

    def hold(self, amounts: Mapping[str, int]) -> None:
        """Set these aside and nothing else: what is gone is free again."""
        self._held = dict(amounts)

    def reserve(self, name: str, num_bytes: int) -> Level:
        """Set `num_bytes` aside in place of what the name had; the level reached, after a cleanup where it was needed.

        Raises RefusedError, with nothing set aside, where they don't fit.
        """
        others = sum(held for other, held in self._held.items() if other != name)
        if others + num_bytes > self.limit_bytes:
            detail = f"{name} needs {num_bytes} bytes; {self.limit_bytes - others} of {self.limit_bytes} are free"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        self._held[name] = num_bytes
        level = self.level
        if level < Level.EMERGENCY:
            return level
        self.clean_up()
        return self.level

    def release(self, name: str) -> int:
        """The bytes that the name had; 0 where it had none."""
        return self._held.pop(name, 0)

    def clean_up(self) -> int:
        """Clear every pool; the bytes freed."""
        self.num_cleanups += 1
        return sum(clear() for _, clear in self._pools)
