"""Where teachers come from: a folder of files named by their digest, and the user's own code for the architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from esper.errors import SettingError, first_line
from esper.kernels.distillation import StaticKDLoss
from esper.kernels.teacher.building import FAULTS, outline
from esper.kernels.teacher.divergence import divergence
from esper.kernels.teacher.files import SUFFIX, require_digest
from esper.kernels.teacher.settings import TeacherSettings
from esper.kernels.teacher.teacher import WARNING, CheckpointedTeacher, Tell
from esper.kernels.teacher.telemetry import CheckpointTelemetry

NUM_LISTED = 5


@dataclass(frozen=True)
class TeacherSource:
    """Where teachers come from. `directory` holds <sha256>.safetensors files; `factory` builds their architecture.

    The factory is the user's own code, never named by a message; it is called for each registration, for a model of
    its own, first with its tensors on the meta device. On `sample`, inputs as the model takes them, a teacher is tried
    before it is taken: its logits must be finite, and its precision and the saving of gradient checkpointing are
    measured and told.
    """

    directory: str | Path
    factory: Callable[[], nn.Module]
    settings: TeacherSettings = field(default_factory=TeacherSettings)
    loss: StaticKDLoss = field(default_factory=StaticKDLoss)
    sample: Tensor | None = None

    def built(self, taken: Iterable[Tensor]) -> nn.Module:
        """A model of the factory's own. SettingError where it fails, or gives a parameter that is among `taken`."""
        model = outline(self)
        others = {id(tensor) for tensor in taken}
        if shared := next((name for name, tensor in model.named_parameters() if id(tensor) in others), ""):
            raise SettingError("teacher's parameter", shared, "one of the factory's own: it is being trained")
        return model

    def opened(self, digest: str, model: nn.Module, tell: Tell) -> CheckpointedTeacher:
        """Checked against its digest and the architecture, and not yet loaded. Draws no random number."""
        return CheckpointedTeacher(
            model, self._path(digest), digest=digest, settings=self.settings, tell=tell, loaded=False
        )

    def loaded(self, teacher: CheckpointedTeacher, tell: Tell) -> dict[str, float]:
        """Load it and try it on the sample; figures by metric name. SettingError where it is not fit."""
        teacher.settle(self.settings.mode)
        measured = {
            "teacher_params_registered": float(teacher.num_parameters),
            "teacher_bytes": float(teacher.resident_bytes()),
            "teacher_load_ms": teacher.load_ms,
        }
        if self.sample is None:
            return measured
        sample = self.sample.to(teacher.device)
        try:
            finite = bool(torch.isfinite(teacher(sample)).all())
        except FAULTS as error:
            raise SettingError(
                "teacher's forward of the sample", type(error).__name__, f"logits: {first_line(error)}"
            ) from error
        if not finite:
            raise SettingError("teacher's logits of the sample", "not finite", "finite numbers")
        return measured | _precision(teacher, sample, tell) | _checkpointing(teacher, sample, tell)

    def _path(self, digest: str) -> Path:
        require_digest(digest)
        directory = Path(self.directory)
        path = directory / f"{digest}{SUFFIX}"
        if not path.is_file():
            found = sorted(each.stem[:12] for each in directory.glob(f"*{SUFFIX}"))
            listed = ", ".join(found[:NUM_LISTED]) + (", ..." if len(found) > NUM_LISTED else "")
            raise SettingError("teacher digest", digest, f"that of a file in {directory}; there: {listed or 'none'}")
        return path


def _precision(teacher: CheckpointedTeacher, sample: Tensor, tell: Tell) -> dict[str, float]:
    """How far it is from itself in float32.

    Without it where the user's architecture computes in one precision alone, or there is no memory for another.
    """
    try:
        return {"teacher_relative_error": divergence(teacher, tell, sample)}
    except FAULTS as error:
        reason = first_line(error)
    tell(WARNING, "teacher.precision_unmeasured", digest=teacher.digest, reason=reason)
    return {}


def _checkpointing(teacher: CheckpointedTeacher, sample: Tensor, tell: Tell) -> dict[str, float]:
    """What only a run with every activation kept can tell.

    Without it where there is no memory for that, or the user's architecture has no gradient to its inputs: one that
    checkpoints by itself, writes to them or computes without a graph. It distils all the same.
    """
    if not sample.is_floating_point():  # no gradient can flow to it
        return {}
    try:
        return CheckpointTelemetry().record_checkpoint_stats(teacher, sample)
    except FAULTS as error:
        reason = first_line(error)
    tell(WARNING, "teacher.checkpointing_unmeasured", digest=teacher.digest, reason=reason)
    return {}
