"""A teacher model: frozen, in eval, in a precision of its own, with its weights where its mode wants them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from esper.errors import SettingError, first_line
from esper.kernels.teacher import int8
from esper.kernels.teacher.checkpointing import Segments
from esper.kernels.teacher.files import TeacherFile
from esper.kernels.teacher.matching import Held
from esper.kernels.teacher.memory import is_out_of_memory
from esper.kernels.teacher.placement import Placement
from esper.kernels.teacher.settings import MODES, Mode, TeacherSettings
from esper.leyline import contracts as pb

INFO, WARNING = pb.TelemetryLevel.TELEMETRY_INFO, pb.TelemetryLevel.TELEMETRY_WARNING


class Tell(Protocol):
    """Where events go: a level, a name in the form noun.verb_past, and facts."""

    def __call__(self, level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None: ...


def silent(level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None:
    """For a teacher whose events nobody waits for."""


class CheckpointedTeacher(nn.Module):
    """Wraps a model whose weights come from a safetensors file. Its logits carry no gradient, save by `through`.

    Gradient checkpointing under no_grad saves nothing, since nothing is kept there; what a teacher holds are its
    weights, and these take less in mode int8 (torchao) or offload (a unit at a time, read from the file). Where memory
    runs out it goes on in the next of these modes and says so.
    """

    def __init__(
        self,
        teacher_model: nn.Module,
        checkpoint_path: str | Path | None = None,
        *,
        digest: str = "",
        settings: TeacherSettings | None = None,
        tell: Tell = silent,
        loaded: bool = True,
    ) -> None:
        """`digest` is the sha256 that the file must have; empty: any. Without a file the model's own weights are used.

        Raises SettingError for a file that is no safetensors, has another digest, or does not fit the model; the model
        is then as it was. Afterwards the model is the teacher's alone: its old Parameter objects are empty. Where not
        `loaded`, the file is checked, and no weight is held before `settle`.
        """
        super().__init__()
        self.settings = settings or TeacherSettings()
        self._tell = tell
        file = TeacherFile.open(Path(checkpoint_path), digest) if checkpoint_path is not None else None
        if file is not None:
            file.require_finite()
        self.digest = file.digest if file is not None else ""
        self._placement = Placement(teacher_model, file or Held(teacher_model), _device(self.settings, teacher_model))
        self.teacher = teacher_model.eval()
        self.segments = Segments(teacher_model, self.settings.checkpoint_segments)
        self.mode: Mode = self.settings.mode
        self.load_ms = 0.0
        self.beside_bytes = 0  # of another teacher, which the budget is shared with
        if loaded:
            self.settle(self.mode)
        else:
            self.release()

    @property
    def device(self) -> torch.device:
        return self._placement.device

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.teacher.parameters())

    def train(self, mode: bool = True) -> CheckpointedTeacher:
        """It stays in eval, whatever the student does."""
        return super().train(False)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Logits without a gradient. Where memory runs out, once more in the next mode; raises in the last."""
        with torch.no_grad():
            while True:
                try:
                    return logits_of(self._compute(self.teacher, *args, **kwargs))
                except RuntimeError as error:
                    if not is_out_of_memory(error) or self.mode == MODES[-1]:
                        raise
                    reason = first_line(error)
                self._fall_back(self.mode, reason)

    def through(self, *args: Any, **kwargs: Any) -> Tensor:
        """Logits whose gradient flows to the inputs, with the trunk checkpointed; the weights stay frozen."""
        return logits_of(self._compute(self.segments.run, *args, **kwargs))

    def unchecked(self, *args: Any, **kwargs: Any) -> Tensor:
        """As `through`, with every activation kept: what checkpointing is measured against."""
        return logits_of(self._compute(self.teacher, *args, **kwargs))

    def reference(self, *args: Any, **kwargs: Any) -> Tensor:
        """Logits of weights and inputs in float32, a unit at a time, without autocast. Comes back in its mode."""
        mode, (args, kwargs) = self.mode, tree_map_only(Tensor, _in_float32, (args, kwargs))
        self._placement.settle("offload", torch.float32)
        try:
            with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                return logits_of(self.teacher(*args, **kwargs))
        finally:
            self.settle(mode)

    def settle(self, mode: Mode) -> None:
        """Put the weights into `mode`, or into the first after it that there is memory for.

        Raises SettingError for a mode that can't be had here, or where even the last needs more than the budget.
        """
        if mode not in MODES:
            raise SettingError("teacher mode", mode, f"one of {', '.join(MODES)}")
        if mode == "int8":
            int8.require()
        started = time.perf_counter()
        for each in MODES[MODES.index(mode) :]:
            reason = self._why_not(each) or self._placed(each)
            if not reason:
                self.mode, self.load_ms = each, (time.perf_counter() - started) * 1e3
                return
            self._tell(WARNING, "teacher.mode_skipped", mode=each, reason=reason)
        self._placement.empty()
        raise SettingError("teacher memory", reason, f"room for it in one of the modes {', '.join(MODES)}")

    def release(self) -> None:
        """Give the weights' memory back, until the next `settle`."""
        self._placement.empty()

    def owns(self, parameter: nn.Parameter) -> bool:
        """Whether it is, or ever was, one of the teacher's: no optimizer may have it."""
        return self._placement.owns(parameter)

    def own(self) -> Iterator[tuple[str, Tensor]]:
        """Its parameters by name, and those that the model was built with."""
        yield from self.teacher.named_parameters()
        yield from ((f"built.{number}", each) for number, each in enumerate(self._placement.originals))

    def resident_bytes(self) -> int:
        """Of the weights and buffers, between two forwards."""
        return self._placement.resident_bytes()

    def expected_bytes(self, mode: Mode) -> int:
        """Most that a mode holds of the weights and buffers at any moment."""
        return self._placement.expected_bytes(mode, self.settings.dtype)

    def _compute(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        amp = self.settings.amp_dtype
        with torch.autocast(self.device.type, dtype=amp, enabled=amp is not None):
            return run(*args, **kwargs)

    def _fall_back(self, mode: Mode, reason: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.settle(MODES[MODES.index(mode) + 1] if int8.available() else MODES[-1])
        self._tell(WARNING, "teacher.fell_back", was=mode, now=self.mode, reason=reason)

    def _why_not(self, mode: Mode) -> str:
        budget, wanted = self.settings.budget_bytes, self.expected_bytes(mode) + self.beside_bytes
        if budget and wanted > budget:
            other = f", {self.beside_bytes} of them of the teacher in use" if self.beside_bytes else ""
            return f"{wanted} bytes{other}; the budget is {budget}"
        return "torchao is not installed" if mode == "int8" and not int8.available() else ""

    def _placed(self, mode: Mode) -> str:
        """Empty where it worked, else the allocator's word."""
        try:
            self._placement.settle(mode, self.settings.dtype)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return first_line(error)
        return ""


def logits_of(output: Any) -> Tensor:
    """A tensor, the `logits` of a model's output object, or the first tensor of a tuple or mapping."""
    found = getattr(output, "logits", output)
    if isinstance(found, Mapping):
        found = tuple(found.values())
    if isinstance(found, tuple | list):
        found = next((each for each in found if isinstance(each, Tensor)), None)
    if not isinstance(found, Tensor):
        raise SettingError("teacher's output", type(output).__name__, "a tensor, or something that holds one as logits")
    return found


def _in_float32(given: Tensor) -> Tensor:
    return given.float() if given.is_floating_point() else given


def _device(settings: TeacherSettings, model: nn.Module) -> torch.device:
    if settings.device:
        return torch.device(settings.device)
    devices = [each.device for each in model.parameters() if not each.is_meta]
    return devices[0] if devices else torch.device("cpu")
