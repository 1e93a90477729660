"""Names of every key in Redis, and a table of who writes and reads each stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from secrets import token_hex

from esper.errors import SettingError
from esper.leyline.terminal_text import printable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,48}")
"""A name, a dash and eight hex digits, or whatever else may stand in a key and in a path."""
RUN_KEY = re.compile(r"esper:\{(?P<run>[^/}]+)(?:/(?P<region>[^}]+))?\}:(?P<name>.+)")
RUNS_KEY = "esper:runs"


@dataclass(frozen=True, slots=True)
class Stream:
    """One row: roles that write and read a stream, the group they read with, and what may be trimmed."""

    name: str
    regional: bool
    writers: str
    readers: str
    group: str
    trimming: str

    @property
    def positioned(self) -> bool:
        """Whether a checkpoint knows how far it had been read."""
        return self.name in POSITIONED


SETTLED = "what every group has settled, after two minutes"
BOUNDED = "after seven days, or beyond the newest 100,000"
LOGGED = "below every rank's oldest checkpoint, once archived"
JUDGE = "coordinator"
POSITIONED = ("commands", "optimizer", "decisions")
"""Logs of which a checkpoint knows how far they had been read."""

STREAMS = (
    Stream("commands", False, "controller", "coordinator, worker", "coordinator; one per worker", LOGGED),
    Stream("optimizer", False, "optimizer", "coordinator, worker", "coordinator; one per worker", LOGGED),
    Stream("receipts", False, "coordinator, worker", "controller, observer", "none (plain read)", LOGGED),
    Stream("votes", False, "worker", "coordinator", "coordinator", SETTLED),
    Stream("decisions", False, "coordinator", "worker, observer", "one per worker", LOGGED),
    Stream("heartbeats", False, "worker", "coordinator, observer", "coordinator", SETTLED),
    Stream("emergency", False, "worker", "controller, observer", "none (plain read)", LOGGED),
    Stream("telemetry", True, "worker", "regional", "regional", SETTLED),
    Stream("regional", True, "regional", "global", "global", SETTLED),
    Stream("global", False, "global", "controller, observer", "none (plain read)", BOUNDED),
    Stream("state", False, "worker", "controller, observer", "none (plain read)", BOUNDED),
    Stream("dead", False, "whoever refuses", "observer", "none (plain read)", BOUNDED),
)

_ROWS = {row.name: row for row in STREAMS}


def key(run: str, name: str) -> str:
    """Key of a run; the run is the hash tag, so that all of a run's keys share one cluster slot."""
    return f"esper:{{{run}}}:{name}"


def region_key(run: str, region: str, name: str) -> str:
    """Key of one region of a run."""
    return f"esper:{{{run}/{region}}}:{name}"


def row_of(stream: str) -> Stream:
    """The row of the table that a key of a run belongs to. KeyError: there is none."""
    found = RUN_KEY.fullmatch(stream)
    return _ROWS[found["name"] if found else stream]


def dead_of(stream: str) -> str:
    """Key of the dead letters of a stream's run; of the stream alone where it belongs to no run."""
    found = RUN_KEY.fullmatch(stream)
    return key(found["run"], "dead") if found else f"{stream}:dead"


def beside(stream: str, name: str) -> str:
    """Key in the same cluster slot as a stream."""
    found = re.match(r"esper:\{[^}]+\}:", stream)
    return f"{found[0]}{name}" if found else f"{stream}:{name}"


def shown(name: bytes) -> str:
    """A name in Redis as a person may be shown it: those that we give are as they are, others may be of any bytes."""
    return printable(name.decode(errors="replace"))


def new_run_id(name: str) -> str:
    """A name and eight random hex digits."""
    return f"{checked_name('run', name)}-{token_hex(4)}"


def checked_run(run_id: str) -> str:
    """The id of a run, if it may be one."""
    if not RUN_ID.fullmatch(run_id):
        raise SettingError(
            "run", run_id, "an id of 1 to 49 letters, digits, dots, dashes or underscores, such as a-1b2c3d4e"
        )
    return run_id


def checked_name(what: str, name: str) -> str:
    """The name, if it may stand in a key and in a path."""
    if not NAME.fullmatch(name):
        raise SettingError(what, name, "1 to 40 letters, digits, dots, dashes or underscores, a letter or digit first")
    return name
