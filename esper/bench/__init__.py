"""The validation suite: arms of one run beside each other, with a control, and figures that say what they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esper.bench.custom.benchmarks import (
        BenchmarkRunner as BenchmarkRunner,
        compare_implementations as compare_implementations,
    )
    from esper.bench.memory.profiler import MemoryProfiler as MemoryProfiler
    from esper.bench.validation.contract import (
        PerformanceValidation as PerformanceValidation,
        PerformanceValidationContract as PerformanceValidationContract,
    )
    from esper.bench.validation.suite import KasminaBenchmarkSuite as KasminaBenchmarkSuite
    from esper.bench.validation.validator import KasminaPerformanceValidator as KasminaPerformanceValidator

# Loaded on first use, as every row and its statistics come with them.
_HOMES = {
    "BenchmarkRunner": "esper.bench.custom.benchmarks",
    "MemoryProfiler": "esper.bench.memory.profiler",
    "compare_implementations": "esper.bench.custom.benchmarks",
    "KasminaBenchmarkSuite": "esper.bench.validation.suite",
    "KasminaPerformanceValidator": "esper.bench.validation.validator",
    "PerformanceValidation": "esper.bench.validation.contract",
    "PerformanceValidationContract": "esper.bench.validation.contract",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
