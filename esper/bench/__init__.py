"""The validation suite: arms of one run beside each other, with a control, and figures that say what they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esper.bench.contract import PerformanceValidationContract as PerformanceValidationContract
    from esper.bench.custom import (
        BenchmarkRunner as BenchmarkRunner,
        compare_implementations as compare_implementations,
    )
    from esper.bench.memory import MemoryProfiler as MemoryProfiler
    from esper.bench.performance import PerformanceValidation as PerformanceValidation
    from esper.bench.suite import KasminaBenchmarkSuite as KasminaBenchmarkSuite
    from esper.bench.validator import KasminaPerformanceValidator as KasminaPerformanceValidator

# Loaded on first use, as every row and its statistics come with them.
_HOMES = {
    "BenchmarkRunner": "esper.bench.custom",
    "MemoryProfiler": "esper.bench.memory",
    "compare_implementations": "esper.bench.custom",
    "KasminaBenchmarkSuite": "esper.bench.suite",
    "KasminaPerformanceValidator": "esper.bench.validator",
    "PerformanceValidation": "esper.bench.performance",
    "PerformanceValidationContract": "esper.bench.contract",
}

__all__ = [
    "BenchmarkRunner",
    "KasminaBenchmarkSuite",
    "KasminaPerformanceValidator",
    "MemoryProfiler",
    "PerformanceValidation",
    "PerformanceValidationContract",
    "compare_implementations",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
