"""The near end of an arm's process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

BENCH = Path(__file__).resolve().parent.parent
PATIENCE_S = 600.0


class ArmError(Exception):
    """An arm that ended, hung, or did not handle each message once."""

    def __init__(self, arm: str, why: str) -> None:
        super().__init__(f"{arm} {why}")
        self.why = why


class Arm:
    """One process that runs the functions of one module, one call at a time. `name`: the module, or module:which."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self._log = name, directory / f"{name}.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bus_arms.run", name.partition(":")[0]],
                cwd=BENCH.parent,
                env={**os.environ, "PYTHONPATH": f"{BENCH}{os.pathsep}{BENCH.parent}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def tell(self, name: str, **given: object) -> None:
        """Begin a call of a function of the module; several arms may be at work at once."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"name": name, "given": given}), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise ArmError(self.name, self.last_words()) from error

    def answer(self, name: str) -> Any:
        """What the call begun last returns."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            raise ArmError(self.name, f"did not answer {name} within {PATIENCE_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise ArmError(self.name, f"ended in {name}: {self.last_words()}")
        return json.loads(line)

    def last_words(self) -> str:
        """The newest line of its log: of a traceback, the error."""
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Arm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
