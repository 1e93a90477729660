"""What a process has refused, counted by stream and reason; told in one line a second at most, however much it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import structlog

from esper.errors import EsperError, RefusedError
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name

TOLD_EVERY_S = 1.0
NUM_LETTERS = 1_000
"""Dead letters, or receipts, that junk may cause at once; then one a second. A day of it is 40 MB, not a full disk."""
LETTERS_PER_S = 1.0
OUT_OF_RANGE = pb.ReasonCode.REASON_OUT_OF_RANGE  # looked up once: of each name the wrapper asks in three tables

log = structlog.get_logger()


class Refusals:
    """Counts everything. Lets go by what anybody without a key could send by the million. Knows nothing of Redis."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.num_untold = 0  # refused without a dead letter or a receipt
        self._clock = clock
        self._told: Counter[tuple[str, str]] = Counter()
        self._tells_at_s = clock()
        self._letters, self._filled_at_s = float(NUM_LETTERS), clock()
        self._next_letter_at_s = clock()

    def note(self, stream: str, entry_id: str, error: EsperError) -> bool:
        """Count one; whether it may also be answered in Redis, by a dead letter or a receipt.

        Always where a holder of the key has sealed something new that makes no sense, or a handler failed.
        """
        reason = error.reason if isinstance(error, RefusedError) else None
        self.counts[stream, "failed" if reason is None else reason_name(reason)] += 1
        now_s = self._clock()
        if now_s >= self._tells_at_s:
            self._tell(stream, entry_id, error, now_s)
        # Replay and junk need no key; a value out of range under a good seal, met for the first time, does.
        needs_key = reason is None or reason == OUT_OF_RANGE
        if needs_key or (now_s >= self._next_letter_at_s and self._takes_letter(now_s)):
            return True
        self.num_untold += 1
        return False

    def _tell(self, stream: str, entry_id: str, error: EsperError, now_s: float) -> None:
        """The newest by name, and how many of each reason since the last line."""
        since: Counter[str] = Counter()
        for (_, reason), num in (self.counts - self._told).items():
            since[reason] += num
        log.warning(
            "message.refused", stream=stream, entry_id=entry_id, why=str(error), reasons=dict(since.most_common())
        )
        self._told = self.counts.copy()
        self._tells_at_s = now_s + TOLD_EVERY_S

    def _takes_letter(self, now_s: float) -> bool:
        self._letters = min(NUM_LETTERS, self._letters + (now_s - self._filled_at_s) * LETTERS_PER_S)
        self._filled_at_s = now_s
        if self._letters < 1:
            self._next_letter_at_s = now_s + (1 - self._letters) / LETTERS_PER_S
            return False
        self._letters -= 1
        return True
