"""Tells by number which messages of a producer were lost: what its stream should hold and does not."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import Header, unpack
from esper.leyline.gaps import Gaps

AUTHENTIC = frozenset(
    {
        pb.ReasonCode.REASON_STALE,
        pb.ReasonCode.REASON_FROM_THE_FUTURE,
        pb.ReasonCode.REASON_PAST_DEADLINE,
        pb.ReasonCode.REASON_REPLAYED,
        pb.ReasonCode.REASON_DUPLICATE,
    }
)
"""Reasons given only once a seal is known to be right: such a message is refused, and not missing."""

log = structlog.get_logger()


class Missing:
    """For one consumer of streams of commands. What is noted is told once it is settled, and not if that is refused."""

    def __init__(self) -> None:
        self.num_missing = 0
        self._gaps = Gaps()
        self._skipped: list[tuple[Header, range]] = []

    def note(self, header: Header) -> None:
        """Look for what was skipped before a message that was opened."""
        if skipped := self._gaps.note(header):
            self._skipped.append((header, skipped))

    def note_refused(self, sealed: bytes, error: RefusedError) -> None:
        """The same for one that was refused, if it is genuine."""
        if error.reason in AUTHENTIC:
            self.note(unpack(sealed).header)

    def changed(self) -> dict[str, bytes]:
        """Fields to be persisted in the settlement."""
        return self._gaps.changed()

    def load(self, fields: Mapping[str, bytes]) -> None:
        """Take up what is persisted, and only that."""
        self._skipped.clear()
        self._gaps.load(fields)

    def tell(self) -> None:
        """Say what is missing, now that this is settled."""
        for header, skipped in self._skipped:
            self.num_missing += len(skipped)
            log.error(
                "sequence.gap",
                role=header.role.value,
                producer=header.producer,
                incarnation=f"{header.incarnation:016x}",
                first=skipped.start,
                last=skipped.stop - 1,
            )
        self._skipped.clear()
