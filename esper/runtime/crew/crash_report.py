"""The death of a process of the run, told with its last words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from esper.errors import EsperError
from esper.runtime.crew.spawn import said

LAST_LINES = 12


class ProcessDiedError(EsperError):
    """A process of the run ended though it should have gone on, or ended in failure."""

    def __init__(self, name: str, exit_code: int, log: Path, last_lines: Sequence[str]) -> None:
        self.name, self.exit_code, self.log, self.last_lines = name, exit_code, log, list(last_lines)
        words = "\n  ".join(last_lines) or "it said nothing"
        super().__init__(f"{name} ended with {said(exit_code)}; the end of {log}:\n  {words}")


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """The end of a log; not read whole, as one may be long. None where it is gone: somebody has cleared up."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
