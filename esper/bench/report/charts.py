"""Inline SVG by pygal: boxes of samples, and lines over sizes or over time, in the colours of the page."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pygal
from markupsafe import Markup, escape
from pygal.style import Style

from esper.bench.output import words

if TYPE_CHECKING:
    from esper.bench.report.spread import Spread

# It adds an importer of the kind that Python 3.12 has dropped, for plug-ins that we have none of; 3.11 warns of it.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]

NUM_COLOURS = 10
_WIDTH, _HEIGHT, _LEGEND = 420, 210, 17
_TICKS = 6
_MOST_POINTS = 170  # two pixels each
_WIDEST = 20.0  # from here on an axis is logarithmic


@dataclass(frozen=True, slots=True)
class Point:
    """Of a line: where it lies, and what the axis says there."""

    at: float
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing and what stands below it."""

    svg: Markup
    caption: str


NONE: Mapping[str, Point] = MappingProxyType({})


def boxes(title: str, spreads: Sequence[Spread]) -> Markup:
    """One box an arm, whiskers within Tukey's fences; what lies outside is counted in the table beside it."""
    if not spreads:
        return Markup()
    wide = _is_wide([value for each in spreads for value in (each.low, each.high)])
    chart = pygal.Box(
        box_mode="extremes", **_options(tuple(range(len(spreads))), wide, [(each.low, each.high) for each in spreads])
    )
    for each in spreads:
        chart.add(each.arm, [each.low, each.quartile, each.quartile, each.median, each.upper, each.upper, each.high])
    described = "; ".join(
        f"{each.arm}: median {words.amount(each.median, each.unit)}, "
        f"quartiles {words.number(each.quartile)} to {words.number(each.upper)}"
        for each in spreads
    )
    return _inline(chart, title, described)


def curves(
    title: str,
    unit: str,
    lines: Mapping[str, Sequence[Point]],
    moments: Mapping[str, Point] = NONE,
    *,
    over: str = "",
    arms: Sequence[str] = (),
) -> Markup:
    """One line an arm; both axes are logarithmic where the sizes span more than tenfold, not so `over` steps or time.

    Moments are dots, each with its name. Lines of `arms` have the colours that the arms have as boxes, in this order.
    """
    points = [point for line in (*lines.values(), [*moments.values()]) for point in line]
    positions = sorted({point.at for point in points})
    is_wide = positions[0] > 0 and positions[-1] >= 10 * positions[0] and all(point.value > 0 for point in points)
    wide = is_wide and not over
    ranges = [(point.value, point.value) for point in points]
    chart = pygal.XY(
        stroke=True,
        dots_size=3 if len(positions) < _WIDTH // 10 else 0,
        **_options(_colours([*lines, *moments], arms), wide, ranges),
    )
    said = {each.at: each.label for each in sorted(points, key=lambda each: bool(each.label))}
    chart.x_labels = [{"value": at, "label": label} for at, label in sorted(said.items())]
    for arm, line in lines.items():
        chart.add(arm, [(point.at, point.value) for point in sorted(line, key=lambda point: point.at)])
    for name, moment in moments.items():
        chart.add(name, [(moment.at, moment.value)], stroke=False, dots_size=5)
    described = "; ".join(
        f"{arm}: " + ", ".join(f"{point.label} {words.amount(point.value, unit)}" for point in line if point.label)
        for arm, line in lines.items()
    )
    return _inline(chart, title, described)


def _colours(names: Sequence[str], arms: Sequence[str]) -> tuple[int, ...]:
    return tuple(arms.index(name) if name in arms else at for at, name in enumerate(names, len(arms)))


@cache
def _style(colours: tuple[int, ...]) -> Style:
    """With a colour for each line: of itself pygal mixes more, which it can't of the page's variables."""
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--rule)",
        colors=tuple(f"var(--series-{number % NUM_COLOURS})" for number in colours),
        font_family="inherit",
        label_font_size=11,
        major_label_font_size=11,
        legend_font_size=11,
        guide_stroke_color="var(--rule)",
        major_guide_stroke_color="var(--rule)",
        guide_stroke_dasharray="1,3",
        major_guide_stroke_dasharray="1,3",
        opacity=".35",
    )


def _options(colours: tuple[int, ...], logarithmic: bool, ranges: Sequence[tuple[float, float]]) -> dict[str, Any]:
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    places = ticks(low, high, logarithmic=logarithmic)
    return {
        "style": _style(colours),
        "js": [],
        "width": _WIDTH,
        "height": _HEIGHT + len(colours) * _LEGEND,
        "margin": 6,
        "margin_right": 26,  # for half of the last label
        "disable_xml_declaration": True,
        "show_legend": True,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 1,
        "legend_box_size": 10,
        "truncate_legend": 40,
        "truncate_label": -1,
        "logarithmic": logarithmic,
        "value_formatter": words.number,
        "y_labels": places,
        "range": (places[0], places[-1]),
        "show_x_guides": False,
        "print_values": False,
    }


def in_order(samples: Sequence[float]) -> list[Point]:
    """As they were taken, every nth where there are more than can be told apart."""
    every = -(-len(samples) // _MOST_POINTS)
    places = range(0, len(samples), every)
    return [Point(at, str(at + 1) if at in (0, places[-1]) else "", samples[at]) for at in places]


def ticks(low: float, high: float, *, logarithmic: bool) -> list[float]:
    """A few round values that enclose both ends: powers of ten, or steps of 1, 2 or 5 times one."""
    if logarithmic:
        first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
        every = -(-(last - first) // _TICKS) or 1
        return [10.0**power for power in range(first, max(last, first + 1) + every, every)]
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** np.floor(np.log10(span / _TICKS))
    step = next(power * times for times in (1, 2, 5, 10) if power * times * _TICKS >= span)
    start, end = int(np.floor(low / step)), int(np.ceil(high / step))
    return [float(step * number) for number in range(start, max(end, start + 1) + 1)]


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > _WIDEST


def _inline(chart: Any, title: str, described: str) -> Markup:
    """The bare svg element: no script, named and described for who can't see it."""
    drawn = chart.render(is_unicode=True)
    drawn = re.sub(r"<script.*?</script>|<!--.*?-->|<title>.*?</title>|<desc.*?</desc>", "", drawn, flags=re.DOTALL)
    named = f'<svg role="img" aria-label="{escape(f"{title}. {described}")}" '
    return Markup(drawn.replace("<svg ", named, 1))
