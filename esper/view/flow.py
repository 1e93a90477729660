"""How telemetry flows: packets made, and what each tier makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from esper.narset.totals import Totals, decode
from esper.view.window import RateWindow

TIERS = ("packets", "regional", "global")


@dataclass
class Flow:
    """The totals of the global tier, and how fast they grow."""

    totals: Totals = field(default_factory=lambda: decode({}))
    is_known: bool = False  # whether they could be read when they were last looked at
    _window: RateWindow = field(default_factory=RateWindow)

    def note_totals(self, fields: Mapping[bytes, bytes], at_ms: int) -> None:
        """The fields of the hash `totals`, read at this time. No seal protects them: junk leaves them unknown."""
        self.is_known = False
        try:
            self.totals = decode(fields)
        except (ValueError, DecodeError):
            return
        self.is_known = True
        self._window.note(at_ms, self.counts)

    @property
    def counts(self) -> dict[str, int]:
        """By tier, over the run."""
        return dict(zip(TIERS, (self.totals.counted, self.totals.regional, self.totals.global_), strict=True))

    def per_s(self, tier: str) -> float | None:
        """Packets folded, or aggregates written, a second."""
        return self._window.per_s(tier)

    @property
    def reductions(self) -> tuple[float | None, float | None]:
        """Packets in a regional aggregate, and regional aggregates in a global one, on average over the run."""
        totals = self.totals
        return _ratio(totals.counted, totals.regional), _ratio(totals.regional, totals.global_)


def _ratio(above: int, below: int) -> float | None:
    return above / below if below else None
