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
        self._since: Counter[str] = Counter()
        self._told_at_s = -TOLD_EVERY_S
        self._letters, self._filled_at_s = float(NUM_LETTERS), clock()

    def note(self, stream: str, entry_id: str, error: EsperError) -> bool:
        """Count one; whether it may also be answered in Redis, by a dead letter or a receipt.

        Always where a holder of the key has sealed something new that makes no sense, or a handler failed.
        """
        reason = reason_name(error.reason) if isinstance(error, RefusedError) else "failed"
        self.counts[stream, reason] += 1
        self._since[reason] += 1
        now_s = self._clock()
        if now_s >= self._told_at_s + TOLD_EVERY_S:
            self._tell(stream, entry_id, error, now_s)
        may_be_told = _only_by_key(error) or self._takes_letter(now_s)
        self.num_untold += not may_be_told
        return may_be_told

    def _tell(self, stream: str, entry_id: str, error: EsperError, now_s: float) -> None:
        """The newest by name, and how many of each reason since the last line."""
        reasons = dict(self._since.most_common())
        log.warning("message.refused", stream=stream, entry_id=entry_id, why=str(error), reasons=reasons)
        self._since.clear()
        self._told_at_s = now_s

    def _takes_letter(self, now_s: float) -> bool:
        self._letters = min(NUM_LETTERS, self._letters + (now_s - self._filled_at_s) * LETTERS_PER_S)
        self._filled_at_s = now_s
        if self._letters < 1:
            return False
        self._letters -= 1
        return True


def _only_by_key(error: EsperError) -> bool:
    """Replay and junk need no key; a value out of range under a good seal, met for the first time, does."""
    return not isinstance(error, RefusedError) or error.reason == OUT_OF_RANGE
