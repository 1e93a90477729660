"""A teacher's way from its file to its first forward, beside the file read and hashed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors.torch import load as parse
from torch import nn

from esper.bench.arm import Ready
from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.rows.distillation import loading
from esper.bench.timing.comparing import compared
from esper.bench.work.teachers.models import BENCHMARK_TEACHER, LARGE_TEACHER, mlp, outlined
from esper.bench.work.teachers.modes import alone, batch_of, listed, written
from esper.kernels.teacher.teacher import CheckpointedTeacher

BATCH = 32
THEIRS_MB, TARGET_S, ASPIRED_S = 14_000, 5.0, 3.0  # unified design, 7: teacher checkpoint load, of 14 GB


def measure(effort: Effort) -> Iterator[Figure]:
    """And what it would be for 14 GB, at the same rate; quick: of the benchmark's teacher."""
    widths = BENCHMARK_TEACHER if effort.is_quick else LARGE_TEACHER
    megabytes = sum(each.nbytes for each in mlp(widths).parameters()) / 1e6
    row = loading(widths, f"{megabytes:.0f} MB")
    for figure in compared(row, effort):
        yield figure
        if (figure.arm, figure.stat) == ("loaded", "p50") and figure.value is not None:
            seconds, stat = figure.value / 1e3 * THEIRS_MB / megabytes, "p50, of 14 GB"
            told = Figure(row.name, figure.arm, stat, seconds, "s", figure.num, DERIVED, row.shape)
            yield told.aimed(TARGET_S, ASPIRED_S)


def parsed(widths: tuple[int, ...]) -> Ready:
    """Read, and parsed by safetensors alone: nothing is hashed, copied aside or checked."""

    def load(path: Path) -> nn.Module:
        model = outlined(widths)
        model.load_state_dict(parse(path.read_bytes()), assign=True)
        return model

    return _ready(widths, load)


def loaded(widths: tuple[int, ...]) -> Ready:
    return _ready(widths, lambda path: CheckpointedTeacher(outlined(widths), path))


def _ready(widths: tuple[int, ...], load: Callable[[Path], nn.Module]) -> Ready:
    """It answers with the logits of what it has loaded."""
    directory = tempfile.TemporaryDirectory(prefix="bench-")
    path, inputs = written(mlp(widths), Path(directory.name)), batch_of(widths, BATCH)
    return Ready(lambda: load(path), lambda: listed(alone(load(path), inputs)), close=directory.cleanup)


def hashed(widths: tuple[int, ...]) -> Ready:
    """What no load does without that goes by a digest."""
    return _of_file(widths, lambda path: hashlib.sha256(path.read_bytes()).digest())


def read(widths: tuple[int, ...]) -> Ready:
    return _of_file(widths, Path.read_bytes)


def _of_file(widths: tuple[int, ...], call: Callable[[Path], object]) -> Ready:
    directory = tempfile.TemporaryDirectory(prefix="bench-")
    path = written(mlp(widths), Path(directory.name))
    return Ready(lambda: call(path), close=directory.cleanup)
