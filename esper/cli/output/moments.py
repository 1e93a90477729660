"""Points in a stream, by entry id or by time: what `--since` and `--until` take."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, tzinfo

from esper.errors import SettingError
from esper.leyline.entries import HIGHEST, entry_ms

ZONE = "A time without a zone is this machine's, as in all that is printed without one."
START, NOW = "0", "$"
EXPECTED = (
    "an entry id such as 1700000000000-0, 0 for all, $ for what comes, "
    "a time such as 12:30 or 2026-11-21T12:30, or 5m for five minutes ago (s, m, h, d)"
)
_ID = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def after(name: str, text: str, now_s: float) -> str:
    """The entry id behind which entries are meant: a time means those from then on. `$` and 0 stay. SettingError."""
    if text in (START, NOW) or _ID.fullmatch(text):
        return text
    return f"{_time_ms(name, text, now_s) - 1}-{HIGHEST}"


def up_to(name: str, text: str, now_s: float) -> str:
    """The last entry id that is meant: a time means all of its millisecond. SettingError."""
    if text == NOW:
        return f"{int(now_s * 1000)}-{HIGHEST}"
    if found := _ID.fullmatch(text):
        return f"{found[1]}-{found[2] or HIGHEST}"
    return f"{_time_ms(name, text, now_s)}-{HIGHEST}"


def said_at(entry_id: str, now_s: float) -> str:
    """When an entry was added, as a person reads it and `--since` takes it: the day only where it is not today's."""
    try:
        at = datetime.fromtimestamp(entry_ms(entry_id) / 1000)
    except (ValueError, OverflowError, OSError):  # no time: anybody may have written the id
        return entry_id
    shown = at if at.date() != datetime.fromtimestamp(now_s).date() else at.time()
    return shown.isoformat(timespec="milliseconds")


def moment(at_ms: int, zone: tzinfo | None = None) -> str:
    """With its day and its zone, by default this machine's, as `--since` takes it; what is no time is told as it is."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # anybody may have written the id of a letter
        return f"{at_ms} ms"


def _time_ms(name: str, text: str, now_s: float) -> int:
    """Of a time without a zone, in that of this machine; of one without a day, today in its zone."""
    if ago := _AGO.fullmatch(text):
        return max(1, round((now_s - float(ago[1]) * _SECONDS[ago[2]]) * 1000))
    now = datetime.fromtimestamp(now_s, UTC)
    try:
        try:
            at = time.fromisoformat(text)
            met = datetime.combine(now.astimezone(at.tzinfo).date(), at)
        except ValueError:
            met = datetime.fromisoformat(text)
        return max(1, round(met.astimezone().timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise SettingError(name, text, EXPECTED) from None
