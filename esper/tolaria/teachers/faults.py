"""What goes wrong with a teacher: counted, told, fed to its breaker, which suspends it on all ranks at once."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from esper.kernels.teacher.teacher import INFO, WARNING, CheckpointedTeacher, Tell
from esper.leyline import contracts as pb

CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL
OPEN = pb.CircuitBreakerState.BREAKER_OPEN
CLOSED = pb.CircuitBreakerState.BREAKER_CLOSED
FAULTS = frozenset({"teacher.fell_back", "teacher.diverged"})


class Breaker(Protocol):
    """A circuit breaker of this rank alone."""

    @property
    def state(self) -> pb.CircuitBreakerState: ...
    def fail(self) -> None: ...
    def succeed(self) -> None: ...
    def close(self) -> None: ...


class Unbreakable:
    """Where nothing is to be suspended."""

    state: pb.CircuitBreakerState = CLOSED

    def fail(self) -> None: ...
    def succeed(self) -> None: ...
    def close(self) -> None: ...


class TeacherFaults:
    """Running out of memory, logits that are not finite and a precision that diverges; each use counts once.

    This rank goes without its teacher as soon as its own breaker is open; all of them do once they have agreed on it,
    and until no rank's is. Called as a Tell, it passes events on.
    """

    def __init__(self, breaker: Breaker, tell: Tell) -> None:
        self.mask: Tensor | None = None  # positions of the newest logits that are finite; None: all
        self.suspended = False
        self.num_faults = 0
        self._breaker, self._tell = breaker, tell
        self._met, self._reason = "", ""
        self._unsound: Tensor | None = None
        self._used = False

    def __call__(self, level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None:
        self._tell(level, description, **attributes)
        if description in FAULTS:
            self._met = description

    @property
    def is_open(self) -> bool:
        return self._breaker.state == OPEN

    @property
    def keeps_out(self) -> bool:
        return self.suspended or self.is_open

    def note(self, logits: Tensor, dim: int) -> None:
        """Look at the logits of one use: without waiting for the device, but where that is the CPU."""
        self._used = True
        self.charge()
        largest = logits.amax(dim)  # NaN is passed on; a class ruled out by -inf is not the largest
        sound = largest.isfinite()
        unsound = (~sound).sum()
        self._unsound = unsound if self._unsound is None else self._unsound + unsound
        self.mask = None if logits.device.type == "cpu" and not int(unsound) else sound

    def charge(self, reason: str = "") -> None:
        """Feed the breaker with what was met since the last time, or with this."""
        if reason := reason or self._met:
            self.num_faults += 1
            self._met, self._reason, self._used = "", reason, False
            self._breaker.fail()

    def look(self, teacher: CheckpointedTeacher | None) -> None:
        """Read what was counted on the device; a time of use without a fault counts as a success."""
        unsound, self._unsound = 0 if self._unsound is None else int(self._unsound), None
        if unsound:
            digest = "" if teacher is None else teacher.digest
            self._tell(WARNING, "teacher.non_finite", digest=digest, positions=str(unsound))
            self.charge(f"logits of {unsound} positions were not finite")
        elif self._used:
            self._breaker.succeed()
        self._used = False

    def agreed(self, is_open: bool, teacher: CheckpointedTeacher | None) -> None:
        """Suspend the teacher, or let it be used again, as all ranks do before this step."""
        if is_open != self.suspended and teacher is not None:
            reason = self._reason if self.is_open else "the breaker of another rank is open"
            facts = {"reason": reason} if is_open else {}
            name = "teacher.suspended" if is_open else "teacher.resumed"
            self._tell(CRITICAL if is_open else INFO, name, digest=teacher.digest, **facts)
        self.suspended = is_open

    def forget(self) -> None:
        """A teacher that was just taken has no history."""
        self._breaker.close()
        self.suspended, self.mask, self._unsound, self._met, self._used = False, None, None, "", False
