"""What earlier runs came to on this machine: JSON lines, one a sitting, a file for each fingerprint."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from esper.errors import SettingError
from esper.leyline.durable import replacing

EXPECTED = "a run's line as `esper bench run --store` writes it; move the file away to begin anew"

Name: TypeAlias = tuple[str, str, str, str]
"""Row, shape, arm and statistic."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure of an earlier run. `cost`: what is compared, lower being better. `suspect`: slower than its baseline."""

    row: str
    shape: str
    arm: str
    stat: str
    value: float
    unit: str
    cost: float
    suspect: bool = False
    samples: Sequence[float] = ()

    @property
    def name(self) -> Name:
        return (self.row, self.shape, self.arm, self.stat)


@dataclass(frozen=True, slots=True)
class Session:
    """One earlier run, or one sitting of it. `mode` is its effort's; only runs of one mode are compared. `load`: of the
    minute, the higher of its start and its end. `took_s`: seconds of each row."""

    at_s: float
    commit: str
    dirty: bool
    mode: str
    load: float
    entries: tuple[Entry, ...]
    took_s: Mapping[str, float] = field(default_factory=dict)


class Store:
    """A folder. A `key` is of a Machine: a run is only ever compared with those of an equal machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else default_folder()

    def sessions(self, key: str) -> list[Session]:
        """Oldest first. A last line that a crash has cut short is left out; raises SettingError for any other one, and
        for a file that can't be read."""
        file = self._file(key)
        with _or_refused(file):
            text = file.read_text() if file.is_file() else ""
        return [_read(line, file, number) for number, line in enumerate(text.split("\n")[:-1], 1)]

    def add(self, key: str, *sessions: Session) -> None:
        """Behind the others; whoever else adds some waits. Raises SettingError where it can't be written."""
        file = self._file(key)
        with _or_refused(file), self._alone():
            _end_at_a_line(file)
            with file.open("a") as out:
                out.writelines(map(_line, sessions))

    def forget(self, key: str, rows: Collection[str]) -> None:
        """Begin anew with these rows on this machine, as after a slow-down that was meant. Raises SettingError for one
        that no earlier run has."""
        file = self._file(key)
        with _or_refused(file), self._alone():
            sessions = self.sessions(key)
            known = sorted({entry.row for session in sessions for entry in session.entries})
            for row in rows:
                if row not in known:
                    expected = f"one of the earlier runs in {file}: {', '.join(known) or 'none yet'}"
                    raise SettingError("the row", row, expected)
            with replacing(file) as out:
                out.writelines(_line(_without(session, rows)).encode() for session in sessions)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.jsonl"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The folder is made where it isn't there; its lock goes with the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def default_folder() -> Path:
    """Where the XDG base directory specification puts what a program remembers from one run to the next.

    SettingError: this user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # Path.home() would raise
    if state.startswith("~"):
        raise SettingError("XDG_STATE_HOME", None, "a folder for earlier runs, or --store, as this user has no home")
    return Path(state, "esper", "bench")


@contextmanager
def _or_refused(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingError(
            "the store of earlier runs", str(file), f"a file to read and write ({error.strerror})"
        ) from None


def _without(session: Session, rows: Collection[str]) -> Session:
    return replace(session, entries=tuple(entry for entry in session.entries if entry.row not in rows))


def _line(session: Session) -> str:
    return json.dumps(asdict(session)) + "\n"


def _read(line: str, file: Path, number: int) -> Session:
    try:
        fields: dict[str, Any] = json.loads(line)
        return Session(**{**fields, "entries": tuple(_entry(**entry) for entry in fields["entries"])})
    except (ValueError, TypeError, KeyError) as error:
        raise SettingError(f"line {number} of {file}", f"{line:.60}", EXPECTED) from error


def _entry(samples: Sequence[float], **fields: Any) -> Entry:
    return Entry(**fields, samples=tuple(samples))


def _end_at_a_line(file: Path) -> None:
    """Cut off what a crash has left of a line."""
    if file.is_file() and not (text := file.read_bytes()).endswith(b"\n"):
        os.truncate(file, text.rfind(b"\n") + 1)
