"""The teacher of a run: registered by its file's digest, replaced between two steps, dropped where it can't stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import RefusedError, SettingError
from esper.kernels.distillation import StaticKDLoss
from esper.kernels.teacher.divergence import DivergenceMonitor
from esper.kernels.teacher.files import SUFFIX, require_digest
from esper.kernels.teacher.memory import is_out_of_memory
from esper.kernels.teacher.settings import TeacherSettings
from esper.kernels.teacher.teacher import INFO, WARNING, CheckpointedTeacher, Tell, silent
from esper.kernels.teacher.telemetry import CheckpointTelemetry
from esper.leyline import contracts as pb

CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL
NUM_LISTED = 5
# What the user's architecture raises where the sample, or a tensor of the file, is not what it takes.
FAULTS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class TeacherSource:
    """Where teachers come from. `directory` holds <sha256>.safetensors files; `factory` builds their architecture.

    The factory is the user's own code, never named by a message; it is called once per registration, for a model of
    its own. On `sample`, inputs as the model takes them, a teacher is tried before it is taken: its logits must be
    finite, and its precision and the saving of gradient checkpointing are measured and told.
    """

    directory: str | Path
    factory: Callable[[], nn.Module]
    settings: TeacherSettings = field(default_factory=TeacherSettings)
    loss: StaticKDLoss = field(default_factory=StaticKDLoss)
    sample: Tensor | None = None


class Teachers:
    """Holds one teacher at most. Knows no wire and no optimizers; all ranks register the same before the same step.

    `taken` are tensors that no teacher may hold: the parameters that are being trained.
    """

    def __init__(
        self, source: TeacherSource, *, tell: Tell = silent, taken: Callable[[], Iterable[Tensor]] = tuple
    ) -> None:
        self.source, self._tell, self._taken = source, tell, taken
        self.current: CheckpointedTeacher | None = None
        self._measured: dict[str, float] = {}
        self._prepared: CheckpointedTeacher | None = None

    def prepare(self, digest: str) -> None:
        """Read and check a file before training, so that its registration need only load it; RefusedError as there."""
        self._prepared = self._opened(digest)

    def register(self, digest: str, step: int) -> str:
        """Load the teacher of this digest in the place of the one there is, and say so in a sentence.

        The one there is already is left alone. RefusedError for a digest without a file, or a file that is not sound or
        does not fit the architecture: the present teacher then stays.
        """
        if self.current is not None and self.current.digest == digest:
            return f"teacher {digest[:12]} is registered already"
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared.digest != digest:
            prepared = self._opened(digest)
        try:
            return self._replace(prepared, step)
        except SettingError as error:
            raise _refused(error) from error

    def predict(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """The teacher's logits, without a gradient; None where there is no teacher, or no longer memory for it."""
        if self.current is None:
            return None
        try:
            logits: Tensor = self.current(*args, **kwargs)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._drop(self.current.digest, str(error).splitlines()[0][:200])
            return None
        return logits

    def distil(self, student_logits: Tensor, *inputs: Any, targets: Tensor | None = None) -> Tensor:
        """What to add to the loss: the weighted KD loss of these logits on these inputs; 0 without a teacher."""
        logits = self.predict(*inputs)
        if logits is None:
            return student_logits.new_zeros(())
        loss: Tensor = self.source.loss(student_logits, logits, targets)
        return loss

    def check(self, *inputs: Any) -> float:
        """Relative error of its logits against the same weights in float32; waits for the device. 0 without one."""
        return DivergenceMonitor(self.current, self._tell).measure(*inputs) if self.current is not None else 0.0

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters that no optimizer may step, those among them that the factory had made."""
        if self.current is not None:
            yield from self.current.own()

    def owns(self, parameter: nn.Parameter) -> bool:
        return self.current is not None and self.current.owns(parameter)

    def state_dict(self) -> dict[str, str]:
        """Which teacher a checkpoint goes on with: its weights lie in its own file."""
        return {"digest": self.current.digest if self.current is not None else ""}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Back to the teacher of a checkpoint; where its file is gone the run goes on without one, and says so."""
        if not (digest := state["digest"]):
            self._leave()
            return
        try:
            self.register(digest, 0)
        except RefusedError as error:
            self._drop(digest, error.detail)

    def take_measured(self) -> dict[str, float]:
        """Figures of the last registration by metric name, once."""
        measured, self._measured = self._measured, {}
        return measured

    def _opened(self, digest: str) -> CheckpointedTeacher:
        """Checked against its digest and the architecture, and not yet loaded."""
        try:
            return self._checked(digest)
        except SettingError as error:
            raise _refused(error) from error

    def _checked(self, digest: str) -> CheckpointedTeacher:
        path = self._path(digest)
        model = self._built()
        taken = {id(tensor) for tensor in self._taken()}
        if shared := next((name for name, tensor in model.named_parameters() if id(tensor) in taken), ""):
            raise SettingError("teacher's parameter", shared, "one of the factory's own: it is being trained")
        return CheckpointedTeacher(
            model, path, digest=digest, settings=self.source.settings, tell=self._tell, loaded=False
        )

    def _built(self) -> nn.Module:
        """By the user's code; the run then draws the numbers that it would have drawn."""
        with torch.random.fork_rng(devices=_cuda_in_use()):
            try:
                return self.source.factory()
            except FAULTS as error:
                raise SettingError("teacher's factory", type(error).__name__, f"a model: {error}") from error

    def _path(self, digest: str) -> Path:
        require_digest(digest)
        directory = Path(self.source.directory)
        path = directory / f"{digest}{SUFFIX}"
        if not path.is_file():
            found = sorted(each.stem[:12] for each in directory.glob(f"*{SUFFIX}"))
            listed = ", ".join(found[:NUM_LISTED]) + (", ..." if len(found) > NUM_LISTED else "")
            raise SettingError("teacher digest", digest, f"that of a file in {directory}; there: {listed or 'none'}")
        return path

    def _replace(self, teacher: CheckpointedTeacher, step: int) -> str:
        """The old one's memory is given back first, as both at once may be more than there is."""
        previous = self.current
        if previous is not None:
            previous.release()
        self.current = None
        try:
            teacher.settle(teacher.mode)
            measured = self._tried(teacher)
            self.current, self._measured = teacher, measured
        finally:
            if self.current is None:
                teacher.release()
                self._go_back_to(previous)
        facts = {name: f"{value:.6g}" for name, value in measured.items()}
        self._tell(INFO, "teacher.registered", digest=teacher.digest, mode=teacher.mode, step=str(step), **facts)
        return (
            f"teacher {teacher.digest[:12]} of {teacher.num_parameters} parameters in mode {teacher.mode}: "
            f"{teacher.resident_bytes()} bytes, loaded in {teacher.load_ms:.0f} ms"
        )

    def _tried(self, teacher: CheckpointedTeacher) -> dict[str, float]:
        measured = {
            "teacher_params_registered": float(teacher.num_parameters),
            "teacher_bytes": float(teacher.resident_bytes()),
            "teacher_load_ms": teacher.load_ms,
        }
        sample = self.source.sample
        if sample is None:
            return measured
        sample = sample.to(teacher.device)
        try:
            finite = bool(torch.isfinite(teacher(sample)).all())
        except FAULTS as error:
            raise SettingError("teacher's forward of the sample", type(error).__name__, f"logits: {error}") from error
        if not finite:
            raise SettingError("teacher's logits of the sample", "not finite", "finite numbers")
        measured["teacher_relative_error"] = DivergenceMonitor(teacher, self._tell).measure(sample)
        return measured | self._checkpointing(teacher, sample)

    def _checkpointing(self, teacher: CheckpointedTeacher, sample: Tensor) -> dict[str, float]:
        """What only a run with every activation kept can tell; without it where there is no memory for that."""
        if not sample.is_floating_point():  # no gradient can flow to it
            return {}
        try:
            return CheckpointTelemetry().record_checkpoint_stats(teacher, sample)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        self._tell(WARNING, "teacher.checkpointing_unmeasured", digest=teacher.digest)
        return {}

    def _go_back_to(self, previous: CheckpointedTeacher | None) -> None:
        if previous is not None:
            previous.settle(previous.mode)
            self.current = previous

    def _drop(self, digest: str, reason: str) -> None:
        """Training goes on without; the next registration may fit again."""
        self._tell(CRITICAL, "teacher.dropped", digest=digest, reason=reason)
        self._leave()

    def _leave(self) -> None:
        if self.current is not None:
            self.current.release()
        self.current = None


def _refused(error: SettingError) -> RefusedError:
    return RefusedError(pb.ReasonCode.REASON_TEACHER_REFUSED, str(error))


def _cuda_in_use() -> list[int]:
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if in_use else []
