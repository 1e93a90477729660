"""How much memory seeds may take together, and what happens when it runs short."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb

FILLING, SHORT = 0.85, 0.90
"""Shares of the limit from which on it is told that memory runs short, and pools are emptied."""


class Budget:
    """Bytes set aside by name. What pools hold counts as well until memory is short, which empties them.

    `filling` is called when that comes to 85 % of the limit, and not again before it was less.
    Equal amounts are refused alike on every rank: whether they fit depends on what was set aside, not on the pools.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise SettingError("budget limit_bytes", limit_bytes, "a number above 0")
        self.limit_bytes = limit_bytes
        self._held: dict[str, int] = {}
        self._pools: list[tuple[Callable[[], int], Callable[[], object]]] = []
        self.filling: Callable[[], object] = lambda: None
        self._is_filling = False

    def watch(self, num_bytes: Callable[[], int], clear: Callable[[], object]) -> None:
        """Count what a pool holds, and clear it where memory is short."""
        self._pools.append((num_bytes, clear))

    @property
    def used_bytes(self) -> int:
        return sum(self._held.values()) + sum(num_bytes() for num_bytes, _ in self._pools)

    @property
    def is_short(self) -> bool:
        return self._is_at(SHORT)

    def hold(self, amounts: Mapping[str, int]) -> None:
        """Set these aside and nothing else: what is gone is free again."""
        self._held = dict(amounts)
        self._is_filling = self._is_filling and self._is_at(FILLING)

    def reserve(self, name: str, num_bytes: int) -> None:
        """Set `num_bytes` aside in place of what the name had, and clear every pool where memory is short then.

        Raises RefusedError, with nothing set aside, where they don't fit.
        """
        others = sum(held for other, held in self._held.items() if other != name)
        if others + num_bytes > self.limit_bytes:
            detail = f"{name} needs {num_bytes} bytes; {self.limit_bytes - others} of {self.limit_bytes} are free"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        self._held[name] = num_bytes
        was_filling, self._is_filling = self._is_filling, self._is_at(FILLING)
        if self._is_filling and not was_filling:
            self.filling()
        if self.is_short:
            for _, clear in self._pools:
                clear()

    def _is_at(self, share: float) -> bool:
        return self.used_bytes / self.limit_bytes >= share
