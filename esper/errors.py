"""What can go wrong, as types that carry the facts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EsperError(Exception):
    """Root of every error that Esper raises on purpose: one sentence, with the value met and what was expected."""


class SettingError(EsperError):
    """A setting, flag or file of the person at the keyboard does not fit."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name, self.value, self.expected = name, value, expected
        met = "not set" if value is None or (isinstance(value, str) and not value) else spelt(value)
        super().__init__(f"{name} is {met}; expected {expected}")


class RefusedError(EsperError):
    """A message was refused. `reason` is a ReasonCode number, `detail` the value met and what was expected."""

    def __init__(self, reason: int, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(detail)


class UnsealedError(RefusedError):
    """Refused before a seal was found right: no key of this run has sealed it."""


class CommandFailedError(EsperError):
    """A command was rejected, or a rank could not carry it out. `ended_the_seed`: a rank culled the seed."""

    def __init__(self, command_id: str, reason: str, detail: str, worker: str, *, ended_the_seed: bool = False) -> None:
        self.command_id, self.reason, self.detail, self.worker = command_id, reason, detail, worker
        self.ended_the_seed = ended_the_seed
        super().__init__(f"command {command_id}: {reason} (said by {worker}): {detail}")


class UnansweredError(EsperError):
    """A command was not answered in time. `unopened`: why the newest answer that came since can't be read, if any."""

    def __init__(self, command_id: str, waited_s: float, missing: list[str], unopened: str = "") -> None:
        self.command_id, self.waited_s, self.missing, self.unopened = command_id, waited_s, missing, unopened
        told = f"command {command_id}: no answer after {waited_s:g} s from {', '.join(missing)}"
        why = f"; one came that can't be opened, as {unopened}: expected a keyring of this run, as new as the run's own"
        super().__init__(told + why * bool(unopened))


class BusError(EsperError):
    """Redis cannot do what is asked: gone, read-only, out of memory, or unfit."""


class UnknownRunError(EsperError):
    """No live run has this name or id."""

    def __init__(self, run: str, known: list[str]) -> None:
        self.run, self.known = run, known
        super().__init__(f"no live run is called {run!r}; live runs: {listed(known)}")


class StaleLeaseError(EsperError):
    """Entries in hand belong to another consumer by now; nothing was written."""

    def __init__(self, stream: str, entry_id: str) -> None:
        self.stream, self.entry_id = stream, entry_id
        super().__init__(f"entry {entry_id} of {stream} is no longer pending for this consumer; nothing was written")


class SpentError(EsperError):
    """Decisions on record go up to the last number that there is: nobody can lead the ranks that have met it."""

    def __init__(self, name: str, number: int, last: int) -> None:
        self.name, self.number, self.last = name, number, last
        super().__init__(
            f"{name} {number} is on record, and a decision may go up to {last}: none can follow, and whoever sealed it "
            "has a key of this run; keep its log (esper log), end its processes, rotate its keys (esper keys rotate), "
            "delete its stream of decisions in Redis, and start it again"
        )


class TrainingError(EsperError):
    """The training process cannot go on as a rank of its run."""


class EvictedError(TrainingError):
    """The process group of this rank ends, as the coordinator decided, to be started anew as a whole."""


class RuntimeLostError(TrainingError):
    """The runtime beside the trainer is gone, or no decision came in time."""


class CheckpointError(EsperError):
    """A checkpoint can't be written, or is not to be believed: torn, forged, of another run or of another model."""

    def __init__(self, why: str, path: str = "") -> None:
        self.why, self.path = why, path
        super().__init__(f"checkpoint {path}: {why}" if path else why)

    def at(self, path: object) -> CheckpointError:
        """The same, of this checkpoint."""
        return CheckpointError(self.why, str(path))


MOST_LINE = 200
MOST_LISTED = 20
MOST_SPELT = 500


def first_line(error: BaseException) -> str:
    """Of what somebody else's code raised, cut where it is long; its type's name, where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:MOST_LINE] if lines else type(error).__name__


def first_bytes(text: str, most: int) -> str:
    """As much of a text as takes so many bytes on the wire; what has no UTF-8 is a question mark."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def spelt(value: object) -> str:
    """A value in one line, cut where it is long."""
    try:
        line = repr(value) if isinstance(value, str) else " ".join(repr(value).split())
    except ValueError:  # Python's limit on the digits of an int
        line = f"a {type(value).__name__} of thousands of digits"
    return line if len(line) <= MOST_SPELT else f"{line[:MOST_SPELT]}..."


def listed(names: Iterable[object]) -> str:
    """How an error spells what there is: of many the first, and how many more there are."""
    every = [str(name) for name in names]
    more = [f"and {len(every) - MOST_LISTED} more"] if len(every) > MOST_LISTED else []
    return ", ".join(every[:MOST_LISTED] + more) or "none"


def near(name: str, known: Iterable[str]) -> str:
    """Known names that are alike, as an aside to put behind `name` in a sentence; empty where there are none."""
    alike = difflib.get_close_matches(name, list(known), n=3)
    return f" (near: {', '.join(map(repr, alike))})" if alike else ""
