"""The near end of a process: told one JSON object a line, answers with one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[3]
PATH = (str(ROOT), str(ROOT / "bench"))  # of a checkout: an installed package is found without
PATIENCE_S = 120.0


class PartError(RuntimeError):
    """A process that ended, hung, or came to something else than was asked for."""

    def __init__(self, part: str, why: str) -> None:
        self.part, self.why = part, why
        super().__init__(f"{part} {why}")


class Part:
    """One process of a module, for as long as the block runs. `given`: its arguments, as JSON."""

    def __init__(self, module: str, name: str, directory: Path, **given: object) -> None:
        self.name, self._log = name, directory / f"{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps({"name": name, **given})],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def ask(self, **told: object) -> Any:
        """What it answers."""
        self.tell(**told)
        return self.answer()

    def tell(self, **told: object) -> None:
        """Say something; the answer may be taken later."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PartError(self.name, f"ended: {self.last_words()}") from error

    def answer(self, patience_s: float = PATIENCE_S) -> Any:
        """The next line that it says."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], patience_s)[0]:
            raise PartError(self.name, f"did not answer within {patience_s:g} s: {self.last_words()}")
        line = self._process.stdout.readline()
        if not line:
            raise PartError(self.name, f"ended: {self.last_words()}")
        return json.loads(line)

    def last_words(self) -> str:
        """The newest line of its log: of a traceback, the error."""
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
