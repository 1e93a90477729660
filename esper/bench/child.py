"""A process that holds one revision's arms and calls one of them whenever it is asked to: JSON, a line each way.

Its path and its questions are what two revisions have in common: an older one is started by them too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.registry import registered
from esper.bench.row import Comparison, Row
from esper.bench.timing.blame import blaming
from esper.bench.timing.collector import settled_collector
from esper.bench.timing.opened import agree, missing, opened, samplers
from esper.errors import EsperError

INTERRUPTED = 130


class Held:
    """The rows there are, and the arms of the one that is open."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows, self._row = rows, ""
        self._stack = ExitStack()
        self._ready: dict[str, Ready] = {}
        self._calls: dict[str, Callable[[], float]] = {}

    def open(self, row: str) -> dict[str, object]:
        """Set its arms up, in place of those of the row before; an answer without `arms` says why there are none."""
        self.close()
        self._row = row
        found = self._rows.get(row)
        if not isinstance(found, Comparison):
            return {"why": "it is no comparison of arms" if found else "there is no such row"}
        absent = missing(found)
        arms = tuple(arm for arm in found.arms if arm.name not in absent)
        self._ready = self._stack.enter_context(opened(found, arms))
        agree(found, self._ready)
        self._calls = samplers(found, self._ready)
        self._stack.enter_context(settled_collector())
        return {"arms": [arm.name for arm in found.arms], "missing": absent, "calls": found.calls}

    def answer(self, arm: str) -> object:
        """What it came to when it was called once; None where it is not to be asked."""
        asked = self._ready[arm].answer
        if asked is None:
            return None
        with blaming(self._row, arm):
            return as_json(asked())

    def call(self, arm: str) -> float:
        return self._calls[arm]()

    def close(self) -> None:
        stack, self._stack = self._stack, ExitStack()
        stack.close()


def as_json(answer: Answer) -> Any:
    """Bytes as text that no string answers with, inside lists too."""
    if isinstance(answer, bytes):
        return {"bytes": answer.hex()}
    return answer if isinstance(answer, str | int | float) else [as_json(part) for part in answer]


def answers(lines: Iterable[str], held: Held) -> Iterable[dict[str, object]]:
    """An error of a row is an answer as well: the next row may be sound."""
    ways: dict[str, Callable[..., object]] = {
        "open": held.open,
        "answer": held.answer,
        "call": held.call,
        "close": held.close,
    }
    for line in lines:
        asked = json.loads(line)
        try:
            yield {"is": ways[asked["ask"]](*asked["of"])}
        except EsperError as error:
            yield {"error": str(error)}


def main() -> None:
    """Whatever an arm prints goes to stderr; stdout is for the answers."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    held = Held(registered([Path(file) for file in sys.argv[1:]]))
    try:
        for answer in answers(sys.stdin, held):
            out.write(json.dumps(answer) + "\n")
            out.flush()
    except KeyboardInterrupt:  # the terminal sends it to all, and who asks says what there is
        sys.exit(INTERRUPTED)
    finally:
        held.close()


if __name__ == "__main__":
    main()
