"""Folding: packets per second of one tier-1 process, and regional aggregates per second of one tier-2 process."""

from __future__ import annotations

import statistics
from functools import partial

from bus_rows.session import Session
from report import by_round
from telemetry_rows.amounts import TIMES

TIERS, LIMITS = "telemetry_arms.tiers", "telemetry_arms.limits"
TARGETS = {"packets": 55_000.0, "frames": 150_000.0, "columns": 2_000_000.0}
UNITS = {"packets": "packets/s", "frames": "packets/s", "columns": "rows/s"}


def measure(session: Session) -> None:
    for form, times in TIMES.items():
        one_form(session, form, times * session.amounts.num)
    tier_2(session, TIMES["frames"] * session.amounts.num)


def one_form(session: Session, form: str, num: int) -> None:
    row, unit = f"tier 1, {form}", UNITS[form]
    asked = {
        "ours": (TIERS, "fold"),
        "ours, processor": (TIERS, "fold_alone"),
        "bare": (LIMITS, "bare"),
        "bare again": (LIMITS, "bare"),
        "bare, processor": (LIMITS, "bare_alone"),
        "bare again, processor": (LIMITS, "bare_alone"),
        "numpy": (LIMITS, "reduce"),
    }
    arms = {name: partial(rate, session, module, call, form, num) for name, (module, call) in asked.items()}
    rates = session.in_turns(row, unit, arms)
    put(session, row, unit, rates, num)
    session.report.aim(row, "ours", "rate", TARGETS[form], higher=True)
    if form == "packets":
        session.report.aim_ratio(row, "ours", "rate", 0.3, higher=True)


def put(session: Session, row: str, unit: str, rates: dict[str, list[float]], num: int) -> None:
    """Each arm's median; ours as a ratio to the bare loop and to numpy, seconds of the processor to such seconds."""
    for arm, values in rates.items():
        kept = "bare, processor" if arm.endswith(", processor") else "bare"
        for against in (kept, "numpy") if arm == "ours" else (kept,):
            vs = None if arm == against or against not in rates else by_round(values, rates[against], against)
            session.report.add(row, arm, "rate", statistics.median(values), unit, num * len(values), vs)


def tier_2(session: Session, num: int) -> None:
    row, unit = "tier 2, aggregates of 32", "aggregates/s"
    arm = partial(rate, session, TIERS, "fold_globally", "", num)
    rates = session.in_turns(row, unit, {"ours": lambda: arm() / 32})
    for name, values in rates.items():
        session.report.add(row, name, "rate", statistics.median(values), unit, num // 32 * len(values))


def rate(session: Session, module: str, call: str, form: str, num: int) -> float:
    given = {"form": form} if form else {}
    return num / float(session.ask(module, call, num=num, **given))
