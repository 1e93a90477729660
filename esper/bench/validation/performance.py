"""Both of the documents' classes in one, which is what their contract asks for."""

from __future__ import annotations

from esper.bench.validation.suite import KasminaBenchmarkSuite
from esper.bench.validation.validator import KasminaPerformanceValidator


class PerformanceValidation(KasminaPerformanceValidator, KasminaBenchmarkSuite):
    """A PerformanceValidationContract: what one half has measured, the other knows."""
