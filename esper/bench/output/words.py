"""How figures read: numbers, ratios with their interval, targets met or missed."""

from __future__ import annotations

from esper.bench.figures import MEASURED, Figure, Ratio, Verdict

NONE = "-"
_WHOLE = 10_000  # from here on a fraction tells nothing


def number(value: float) -> str:
    """Four significant digits, thousands apart, without an exponent where it can do without."""
    if abs(value) >= _WHOLE:
        return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3e}"
    return f"{value:.4g}"


def amount(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".rstrip()


def value_of(figure: Figure) -> str:
    """With its unit, and its label where it wasn't measured itself."""
    if figure.value is None:
        return NONE
    said = amount(figure.value, figure.unit)
    return said if figure.label == MEASURED else f"{said} ({figure.label})"


def interval(ratio: Ratio) -> str:
    return f"{times(ratio.ratio)} [{times(ratio.low)}, {times(ratio.high)}]"


def times(ratio: float) -> str:
    """Three decimals near one, none where it is hundreds."""
    return f"{ratio:,.{3 if ratio < 10 else 1 if ratio < 100 else 0}f}"


def ratio_of(figure: Figure) -> str:
    """To the arm it is compared with, or why there is nothing to compare."""
    if figure.value is None:
        return figure.label
    if figure.vs is None:
        return ""
    said = f"{interval(figure.vs)} x {figure.vs.arm}"
    return f"{said}, {figure.vs.verdict}" if figure.vs.verdict else said


def brief(verdict: Verdict | None) -> str:
    """For narrow columns."""
    return "alike" if verdict == "indistinguishable" else verdict or ""


def goals_of(figure: Figure) -> str:
    """Target, then aspiration, each met or missed; neither word where nothing was measured."""
    named = (("", figure.target), ("aim ", figure.aspiration))
    met = {True: " met", False: " missed", None: ""}
    return ", ".join(
        f"{name}{sign(figure)} {number(goal)}{met[figure.reaches(goal)]}" for name, goal in named if goal is not None
    )


def sign(figure: Figure) -> str:
    return ">=" if figure.higher else "<="


def percent(part: float) -> str:
    """Of one: two digits, all those before the point. For page.html."""
    return f"{100 * part:,.{0 if part >= 0.1 else 1}f} %"
