"""The teachers of a session: told of in log and telemetry, kept apart from what is being trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import structlog
import torch

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.rows.rows import Rows
from esper.tolaria.teachers.faults import Breaker
from esper.tolaria.teachers.teachers import Agree, Teachers, TeacherSource

log = structlog.get_logger()


def open_teachers(
    source: TeacherSource | None,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    agree: Agree,
    breaker: Breaker,
) -> Teachers | None:
    """None where attach() was given no source. A teacher lies where the model does unless its settings say where.

    All ranks call it alike; SettingError where only some were given one, as they agree on each step of theirs.
    """
    share = float(agree(torch.tensor(float(source is not None), device="cpu")))
    if 0 < share < 1:
        raise SettingError("teachers", f"given to {share:.0%} of the ranks", "given to all of them, or to none")
    if source is None:
        return None

    def tell(level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None:
        rows.note(level, description, **attributes)
        quiet = level <= pb.TelemetryLevel.TELEMETRY_INFO
        (log.info if quiet else log.warning)(description, **attributes)

    def taken() -> Iterator[torch.Tensor]:
        yield from model.parameters()
        for group in optimizer.param_groups:
            yield from group["params"]

    if not source.settings.device:
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        source = replace(source, settings=replace(source.settings, device=str(device)))
    return Teachers(source, tell=tell, taken=taken, agree=agree, breaker=breaker)


def with_teachers(around: Surroundings, teachers: Teachers | None) -> Surroundings:
    """Their parameters belong to no optimizer, and REGISTER_TEACHER reaches them."""
    if teachers is None:
        return around
    return replace(around, teacher=teachers.named, register_teacher=teachers.begin)
