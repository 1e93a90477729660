"""Metrics that pass: told in each aggregate, and kept in no total, whose names are few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

PREFIX = "~"
"""What the name of such a metric begins with."""

Told = TypeVar("Told")


def lasting(metrics: Mapping[str, Told]) -> dict[str, Told]:
    """Those that totals keep."""
    return {name: told for name, told in metrics.items() if not name.startswith(PREFIX)}
