"""What the documents' large teacher holds in each mode, and what its logits lose by it."""

from __future__ import annotations

from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure, not_measured
from esper.bench.work.allocated import peak_bytes
from esper.bench.work.teachers.models import BENCHMARK_TEACHER, LARGE_TEACHER, mlp
from esper.bench.work.teachers.modes import alone, batch_of, teacher_of
from esper.kernels.teacher import int8
from esper.kernels.teacher.divergence import relative_error
from esper.kernels.teacher.settings import MODES, Mode, TeacherSettings

ROW, MEGA, BATCH = "teacher-memory", 1e6, 32
HALF = 0.5  # 1.2: 7 of 14 GB, which are float16 as nothing else of 7 B parameters is
MOST_ERROR = 0.05  # TeacherSettings.max_relative_error


def measure(effort: Effort) -> Iterator[Figure]:
    """Bytes of weights between forwards and in one; quick: of the benchmark's teacher."""
    widths = BENCHMARK_TEACHER if effort.is_quick else LARGE_TEACHER
    model, inputs = mlp(widths), batch_of(widths, BATCH)
    full, expected = sum(each.nbytes for each in model.parameters()), alone(model, inputs)
    shape = f"{BATCH} x {'-'.join(map(str, widths))}"
    for mode in MODES:
        if mode == "int8" and not int8.available():
            yield Figure(ROW, mode, "held", None, "MB", label=not_measured("torchao is not installed"), shape=shape)
            continue
        teacher = teacher_of(widths, TeacherSettings(mode=mode))
        error = relative_error(teacher(inputs), expected)
        yield Figure(ROW, mode, "held", teacher.resident_bytes() / MEGA, "MB", 1, shape=shape)
        yield Figure(ROW, mode, "most", teacher.expected_bytes(mode) / MEGA, "MB", 1, DERIVED, shape)
        yield _of_float16(mode, teacher.resident_bytes() / (full / 2), shape)
        yield Figure(ROW, mode, "new in a forward", peak_bytes(lambda: teacher(inputs)) / MEGA, "MB", 1, shape=shape)  # noqa: B023
        yield Figure(ROW, mode, "relative error", error, "", 1, shape=shape, target=MOST_ERROR)


def _of_float16(mode: Mode, ratio: float, shape: str) -> Figure:
    figure = Figure(ROW, mode, "held, of float16", ratio, "x", 1, DERIVED, shape)
    return figure if mode == "full" else figure.aimed(HALF, HALF / 2)
