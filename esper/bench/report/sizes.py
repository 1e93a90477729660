"""Which rows are one measurement at several sizes, and where each size lies on an axis."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from esper.bench.figures import Figure
from esper.bench.report.charts import Point

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
STAT = "p50"


def scaling(figures: Sequence[Figure]) -> dict[str, dict[str, list[Point]]]:
    """Medians by row and arm over size, of rows that go on in others' names (kd-loss, kd-loss-128x10) or have several
    shapes; left out where shapes are no sizes, or an arm has only one."""
    names = {figure.row for figure in figures}
    found: dict[str, dict[str, list[Figure]]] = {}
    for figure in figures:
        if figure.stat == STAT and figure.value is not None:
            found.setdefault(stem(figure.row, names), {}).setdefault(figure.arm, []).append(figure)
    drawn = {row: {arm: points(of) for arm, of in arms.items()} for row, arms in found.items()}
    kept = {row: {arm: line for arm, line in arms.items() if len(line) > 1} for row, arms in drawn.items()}
    return {row: arms for row, arms in kept.items() if arms}


def stem(row: str, names: set[str]) -> str:
    """The shortest name that this one goes on from, behind a hyphen; else its own."""
    return min((name for name in names if row.startswith(f"{name}-")), key=len, default=row)


def points(figures: Sequence[Figure]) -> list[Point]:
    """By size; none where the shapes differ in more than their numbers."""
    shapes = [figure.shape for figure in figures]
    places = positions(shapes)
    unique = len(set(places)) == len(places) > 1
    return (
        sorted(
            (
                Point(place, label, figure.value)
                for (place, label), figure in zip(places, figures, strict=True)
                if figure.value is not None
            ),
            key=lambda point: point.at,
        )
        if unique
        else []
    )


def positions(shapes: Sequence[str]) -> list[tuple[float, str]]:
    """The product of the numbers that vary, and those numbers as a label; empty where the words around them vary."""
    if len({_NUMBER.sub("#", shape) for shape in shapes}) != 1:
        return []
    numbers = [_NUMBER.findall(shape) for shape in shapes]
    varying = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    return [
        (math.prod(float(number.replace(",", "")) for number in of), " x ".join(of))
        for of in zip(*varying, strict=True)
    ]
