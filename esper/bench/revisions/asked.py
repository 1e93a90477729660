"""The other end of a process that holds one revision's arms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.bench.agreement import Answer
from esper.bench.timing.blame import ArmFailedError

ENDS_S = 30.0


@dataclass(slots=True)
class Child:
    """Its methods ask and wait; each raises ArmFailedError where the row has failed there, or the process ended."""

    name: str
    process: subprocess.Popen[str]
    row: str = ""

    def open(self, row: str) -> dict[str, Any]:
        self.row = row
        answer: dict[str, Any] = self._ask("open", row)
        return answer

    def answer(self, arm: str) -> Answer | None:
        answer: Answer | None = _from_json(self._ask("answer", arm))
        return answer

    def call(self, arm: str) -> float:
        """Seconds that the call took over there: what lies between the processes is not counted."""
        return float(self._ask("call", arm))

    def close(self) -> None:
        self._ask("close")

    def _ask(self, what: str, *of: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"ask": what, "of": of}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ArmFailedError(self.row, self.name, f"its process ended with status {self.process.wait(ENDS_S)}")
        answer = json.loads(line)
        if "error" in answer:
            raise ArmFailedError(self.row, self.name, answer["error"])
        return answer["is"]


@contextmanager
def child(name: str, tree: Path, files: Sequence[Path]) -> Iterator[Child]:
    """A process of this interpreter that imports what is in `tree`; it ends with the block."""
    command = [sys.executable, "-P", "-m", "esper.bench.child", *(str(file.resolve()) for file in files)]
    path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Child(name, process)
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Its arms are closed when it has no more to read."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _from_json(answer: Any) -> Any:
    if isinstance(answer, dict):
        return bytes.fromhex(answer["bytes"])
    return [_from_json(part) for part in answer] if isinstance(answer, list) else answer
