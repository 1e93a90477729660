"""The teacher of a run: registered by its file's digest, replaced between two steps, dropped where it can't stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import RefusedError, SettingError, first_line
from esper.kernels.teacher.divergence import divergence
from esper.kernels.teacher.memory import is_out_of_memory
from esper.kernels.teacher.teacher import INFO, WARNING, CheckpointedTeacher, Tell, silent
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import OptimizerOutcome
from esper.tolaria.teachers.arrivals import Arrival, Loaded, Relay
from esper.tolaria.teachers.faults import Breaker, TeacherFaults, Unbreakable
from esper.tolaria.teachers.registrations import Registrations, load
from esper.tolaria.teachers.source import TeacherSource as TeacherSource

CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL
BY_CHANCE = "its teacher failed, fell back or was suspended, by what the clock and the memory said"
WITHOUT = "it went on from a checkpoint without a teacher that was on its way there: another day its file may be there"
ELSEWHERE = "another rank can't have it, so that none takes it"

Agree = Callable[[Tensor], Tensor]


def _alone(flags: Tensor) -> Tensor:
    return flags


class Teachers:
    """Holds one teacher at most. Knows no wire and no optimizers; ranks take, suspend and drop one in the same step.

    `taken` are tensors that no teacher may hold: the parameters that are being trained. `agree` makes a tensor its mean
    over ranks.
    """

    def __init__(
        self,
        source: TeacherSource,
        *,
        tell: Tell = silent,
        taken: Callable[[], Iterable[Tensor]] = tuple,
        agree: Agree = _alone,
        breaker: Breaker | None = None,
    ) -> None:
        self.source, self._tell, self._agree = source, tell, agree
        self.current: CheckpointedTeacher | None = None
        self.faults = TeacherFaults(breaker or Unbreakable(), tell)
        self._lost = False  # dropped by this rank; the others still have theirs
        self._chance = ""  # what a run before this process met, of which a log says nothing
        self._measured: dict[str, float] = {}
        self._registrations = Registrations(taken)
        self._known = self._news()

    # -- registration ------------------------------------------------------------------------------------------------

    def prepare(self, digest: str) -> None:
        """Read and check a file before training, so that its registration need only load it; RefusedError as there."""
        try:
            self._registrations.prepare(self.source, digest)
        except SettingError as error:
            raise _refused(error) from error

    def register(self, digest: str, step: int) -> str:
        """Load the teacher of this digest in the place of the one there is, and say so in a sentence.

        The one there is already is left alone. RefusedError for a digest without a file, or a file that is not sound or
        does not fit the architecture: the present teacher then stays. Waits for the loading: for a boundary that
        nobody waits at. `begin` is for training.
        """
        if self._has(digest):
            return _already(digest)
        try:
            opened, relay = self._registrations.opening(self.source, digest)
            return self._replace(opened(), relay, step)
        except SettingError as error:
            raise _refused(error) from error

    def begin(self, digest: str, step: int) -> str:
        """Load this one beside the one there is, after those that were begun before it; `settle` takes it.

        Returns nothing to say. All ranks call it before the same step.
        """
        self._registrations.add(digest, self.source, self.current)
        return ""

    @property
    def by_chance(self) -> str:
        """What became of a teacher by the clock or the memory, and not at a decision of the run; empty: nothing."""
        return BY_CHANCE if self.faults.num_faults else self._chance

    @property
    def has_news(self) -> bool:
        """Whether the ranks should agree anew: a teacher is here or refused, a breaker has opened or closed."""
        return self._news() != self._known

    def settle(self, step: int, *, refused: str = "") -> OptimizerOutcome | None:
        """Agree with the other ranks; what became of the oldest registration, once that is decided for all of them.

        All ranks call it before the same step, at each decision of the run. Waits for the device. `refused`: why the
        oldest one was refused in the run that is replayed, also where its file has been brought since.
        """
        self.faults.look(self.current)
        self._registrations.look(self.source, self.current)
        arrival = self._registrations.arrival
        here = arrival is not None and arrival.is_here
        failed = arrival is not None and (bool(refused) or arrival.error is not None)
        is_open = self.faults.is_open
        flags = torch.tensor([here, failed, is_open, self._lost], dtype=torch.float64, device="cpu")
        all_here, any_failed, any_open, any_lost = self._agree(flags).tolist()
        if any_lost:
            self._follow_loss()
        self.faults.agreed(any_open > 0, self.current)
        outcome = None
        if arrival is not None and (any_failed or all_here > 1 - 1e-6):  # a mean may be a rounding error below 1
            outcome = self._decided(step, (refused or ELSEWHERE) if any_failed else "")
        # What the flags said, not what is so by now: a teacher that came since then is news.
        self._known = (here or failed) and outcome is None, is_open, self._lost
        return outcome

    def wait(self) -> None:
        """Until what is on its way is here or refused on this rank; it is taken at the next `settle`."""
        self._registrations.look(self.source, self.current)
        if self._registrations.arrival is not None:
            self._registrations.arrival.wait()

    def close(self) -> None:
        """Take nothing that is still on its way."""
        self._registrations.close()

    # -- use ---------------------------------------------------------------------------------------------------------

    def predict(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """The teacher's logits, without a gradient; None where there is none, no memory for it, or it is suspended."""
        if self.current is None or self.faults.keeps_out:
            return None
        try:
            logits: Tensor = self.current(*args, **kwargs)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._drop(self.current.digest, first_line(error))
            return None
        self.faults.note(logits, self.source.loss.dim)
        return logits

    def distil(self, student_logits: Tensor, *inputs: Any, targets: Tensor | None = None) -> Tensor:
        """What to add to the loss: the weighted KD loss of these logits on these inputs; 0 without a teacher.

        Positions for which the teacher's logits are not finite count nothing.
        """
        logits = self.predict(*inputs)
        if logits is None:
            return student_logits.new_zeros(())
        loss: Tensor = self.source.loss(student_logits, logits, targets, mask=self.faults.mask)
        return loss

    def check(self, *inputs: Any) -> float:
        """Relative error of its logits against the same weights in float32; waits for the device. 0 without one."""
        if self.current is None:
            return 0.0
        error = divergence(self.current, self.faults, *inputs)
        self.faults.charge()
        return error

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters that no optimizer may step, those among them that the factory had made."""
        if self.current is not None:
            yield from self.current.own()

    def owns(self, parameter: nn.Parameter) -> bool:
        return self.current is not None and self.current.owns(parameter)

    def take_measured(self) -> dict[str, float]:
        """Figures of the last registration by metric name, once."""
        measured, self._measured = self._measured, {}
        return measured

    def state_dict(self) -> dict[str, Any]:
        """Which teacher a checkpoint goes on with, and which were on their way: weights lie in their own files."""
        return {
            "digest": self.current.digest if self.current is not None else "",
            "pending": list(self._registrations.waiting),
            "chance": self.by_chance,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Back to the teacher of a checkpoint; one that was on its way has arrived, if all ranks can have it.

        All of them call it alike. Where the file of the one in use is gone on one, they go on without, and say so.
        """
        self._chance = state.get("chance", "")
        for digest in reversed(state.get("pending", [])):
            if not (reason := self._refused_somewhere(digest)):
                return
            self._chance = self._chance or WITHOUT
            self._tell(WARNING, "teacher.refused", digest=digest[:80], reason=reason)
        if not state["digest"]:
            self._leave()
        elif reason := self._refused_somewhere(state["digest"]):
            self._drop(state["digest"], reason)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _news(self) -> tuple[bool, ...]:
        arrival = self._registrations.arrival
        return arrival is not None and arrival.result.done(), self.faults.is_open, self._lost

    def _refused_somewhere(self, digest: str) -> str:
        """Register it; why not all ranks have it now, if they don't."""
        reason = ""
        try:
            self.register(digest, 0)
        except RefusedError as error:
            reason = error.detail
        everywhere = float(self._agree(torch.tensor(float(not reason), device="cpu"))) > 1 - 1e-6
        return "" if everywhere else reason or ELSEWHERE

    def _has(self, digest: str) -> bool:
        return self.current is not None and self.current.digest == digest

    def _decided(self, step: int, refused: str) -> OptimizerOutcome:
        arrival = self._registrations.decide()
        outcome = self._refuse(arrival, refused) if refused else self._take(arrival, step)
        self._registrations.go_on(self.source, self.current)
        return outcome

    def _refuse(self, arrival: Arrival, reason: str) -> OptimizerOutcome:
        """For a reason of its own, if it has one."""
        reason = reason if arrival.error is None else str(arrival.error)
        arrival.abandon()
        arrival.relay.open(self._tell)
        self._tell(WARNING, "teacher.refused", digest=arrival.digest[:80], reason=reason)
        if isinstance(arrival.error, SettingError) and arrival.error.name == "teacher memory":
            self.faults.charge(reason)
        return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_FAILED, pb.ReasonCode.REASON_TEACHER_REFUSED, reason)

    def _take(self, arrival: Arrival, step: int) -> OptimizerOutcome:
        loaded, previous = arrival.result.result(), self.current
        if loaded is None:
            return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_APPLIED, detail=_already(arrival.digest))
        self.current = loaded.teacher
        if previous is not None:
            previous.release()
            self._make_room_of(loaded.teacher)
        return OptimizerOutcome(pb.ReceiptStatus.RECEIPT_APPLIED, detail=self._announced(loaded, arrival.relay, step))

    def _make_room_of(self, teacher: CheckpointedTeacher) -> None:
        """It was loaded beside another one; where that made it smaller than was asked for, it may be so no longer."""
        teacher.beside_bytes = 0
        if teacher.mode != self.source.settings.mode:
            try:
                teacher.settle(self.source.settings.mode)
            except SettingError as error:
                self._drop(teacher.digest, str(error))

    def _replace(self, teacher: CheckpointedTeacher, relay: Relay, step: int) -> str:
        """The old one's memory is given back first, as both at once may be more than there is."""
        previous, self.current = self.current, None
        if previous is not None:
            previous.release()
        try:
            loaded = load(self.source, lambda: teacher, 0, relay)
            self.current = teacher
        finally:
            if self.current is None:
                relay.open(self._tell)
                self._go_back_to(previous)
        return self._announced(loaded, relay, step)

    def _announced(self, loaded: Loaded, relay: Relay, step: int) -> str:
        teacher, self._measured = loaded.teacher, loaded.measured
        self._lost = False
        self.faults.forget()
        relay.open(self.faults)
        self.faults.charge()
        facts = {name: f"{value:.6g}" for name, value in loaded.measured.items()}
        self._tell(INFO, "teacher.registered", digest=teacher.digest, mode=teacher.mode, step=str(step), **facts)
        return (
            f"teacher {teacher.digest[:12]} of {teacher.num_parameters} parameters in mode {teacher.mode}: "
            f"{teacher.resident_bytes()} bytes, loaded in {teacher.load_ms:.0f} ms"
        )

    def _go_back_to(self, previous: CheckpointedTeacher | None) -> None:
        if previous is not None:
            previous.settle(previous.mode)
            self.current = previous

    def _drop(self, digest: str, reason: str) -> None:
        """Training goes on without; the next registration may fit again."""
        self._lost = True
        self._tell(CRITICAL, "teacher.dropped", digest=digest, reason=reason)
        self.faults.charge(reason)
        self._leave()

    def _follow_loss(self) -> None:
        """A rank has dropped it, so that all go on without."""
        if self.current is not None:
            self._tell(CRITICAL, "teacher.dropped", digest=self.current.digest, reason="another rank has dropped it")
        self._leave()
        self._lost = False

    def _leave(self) -> None:
        if self.current is not None:
            self.current.release()
        self.current = None


def _already(digest: str) -> str:
    return f"teacher {digest[:12]} is registered already"


def _refused(error: SettingError) -> RefusedError:
    return RefusedError(pb.ReasonCode.REASON_TEACHER_REFUSED, str(error))
