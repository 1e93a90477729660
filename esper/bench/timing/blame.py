"""An arm that fails fails its row, with its name: nothing is timed in its place."""

from __future__ import annotations

from types import TracebackType

from esper.errors import EsperError


class ArmFailedError(EsperError):
    """An arm raised. Its own error is the cause."""

    def __init__(self, row: str, arm: str, why: str) -> None:
        self.row, self.arm, self.why = row, arm, why
        super().__init__(f"{row}: {arm} failed: {why}")


class blaming:
    """What is raised within becomes an ArmFailedError of this arm: whatever it is, as arms are anybody's code.

    Ctrl-C and exits go through, and so does what Esper says of the row itself.
    """

    def __init__(self, row: str, arm: str) -> None:
        self._row, self._arm = row, arm

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, ArmFailedError):
            raise ArmFailedError(self._row, self._arm, f"{type(error).__name__}: {error}") from error
