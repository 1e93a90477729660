"""Figures as JSON, one object a line, and read back from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from esper.bench.figures import Figure
from esper.bench.machine import Machine
from esper.errors import SettingError

OTHER = "other"
NOT_ITS_OWN = ("bench", "met", "n", "machine", "commit")
_FIGURE = TypeAdapter(Figure)
_SIGNIFICANT = 6  # digits of a sample: far below what a clock is good to


def family_of(row: str, families: Mapping[str, str]) -> str:
    """Of a figure's row: that of the registered row of this name, else of the longest one that its name begins with."""
    known = max((name for name in families if row.startswith(name)), key=len, default="")
    return families.get(row) or families.get(known) or OTHER


def as_fields(figure: Figure, bench: str, *, samples: bool = False) -> dict[str, object]:
    """`bench` is the row's family. What a figure does not have is left out, `value` aside, which is null."""
    fields: dict[str, object] = {"bench": bench, "row": figure.row, "arm": figure.arm, "stat": figure.stat}
    fields |= {"value": _finite(figure.value), "unit": figure.unit, "n": figure.num, "label": figure.label}
    optional = {"shape": figure.shape, "higher": figure.higher, "gate": figure.gate}
    fields |= {name: value for name, value in optional.items() if value}
    goals = {"target": figure.target, "aspiration": figure.aspiration, "met": figure.met}
    fields |= {name: value for name, value in goals.items() if value is not None}
    if figure.vs is not None:
        ratio = {name: _finite(value) for name, value in asdict(figure.vs).items()}
        fields["vs"] = {name: value for name, value in ratio.items() if value is not None}
    if samples and figure.samples:
        fields["samples"] = [float(f"{sample:.{_SIGNIFICANT}g}") for sample in figure.samples]
    return fields


def _finite(value: Any) -> Any:
    """JSON has no infinity: an interval without an end leaves it out."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_line(figure: Figure, bench: str, machine: Machine | None = None) -> str:
    """With the key of the machine and the commit that it is from."""
    origin = {} if machine is None else {"machine": machine.key, "commit": machine.commit}
    return json.dumps({**as_fields(figure, bench), **origin})


def as_figure(fields: Mapping[str, object]) -> Figure:
    """SettingError where it is no figure."""
    own = {name: value for name, value in fields.items() if name not in NOT_ITS_OWN}
    if isinstance(vs := own.get("vs"), dict):
        own["vs"] = {"low": -math.inf, "high": math.inf, **vs}
    try:
        return _FIGURE.validate_python({**own, "num": fields.get("n", 0)})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "figure"
        raise SettingError(f"{where} of a figure", first["input"], first["msg"].lower()) from None
