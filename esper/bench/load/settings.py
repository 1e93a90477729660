"""What a person asks of a load: what kind, how much, for how long, of which run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from esper.bus.names import checked_name
from esper.errors import SettingError, near

Kind: TypeAlias = Literal["command", "telemetry", "barrier"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """One load. What is empty comes from ESPER_RUN, ESPER_REDIS_URL and ESPER_KEYRING, as in every command.

    `rate`: requests a second; 0 asks nothing, and only a load of barriers may. `region`: of telemetry, empty for the
    first that a worker was heard of in. After the last request answers are awaited for up to `patience_s`.
    """

    kind: Kind
    rate: float
    seconds: float
    run: str | None = None
    redis_url: str | None = None
    keyring: Path | None = None
    region: str = ""
    name: str = "load"
    patience_s: float = 10.0

    def __post_init__(self) -> None:
        least = 0.0 if self.kind == "barrier" else 1e-3
        if not least <= self.rate <= MOST_PER_S:
            raise SettingError("--rate", self.rate, f"requests a second from {least:g} to {MOST_PER_S:g}")
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise SettingError("--seconds", self.seconds, "a time above 0")
        checked_name("--name", self.name)


def checked_kind(text: str) -> Kind:
    """The kind, or a SettingError that lists them."""
    for kind in KINDS:
        if kind == text:
            return kind
    raise SettingError("--kind", text, f"one of {', '.join(KINDS)}{near(text, KINDS)}")
