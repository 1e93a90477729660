"""The documents' benchmark suite: one method a benchmark, each over rows of ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from esper.bench.machine import this_machine
from esper.bench.rows.wire import CALLS, SERIALISED
from esper.bench.soak.stability import soak
from esper.bench.timing.logs import logs_on_stderr
from esper.bench.validation import outcomes
from esper.bench.validation.measuring import Measuring
from esper.bench.validation.outcomes import Outcome

HOURS_IN_REPORT = 0.1
FEWEST = 30  # rounds that are enough for a median with an interval


class KasminaBenchmarkSuite(Measuring):
    """Section 3.1 of the performance-validation document. Its results are under the documents' keys."""

    def run_kernel_loading_benchmark(self, iterations: int = 1000) -> Outcome:
        """So many rounds, in each of which every arm of kernel-load is called once."""
        read = self.measure("kernel-load", iterations=iterations)
        return self._keep("kernel_loading", outcomes.kernel_loading(read))

    def run_gradient_isolation_benchmark(self, iterations: int = 500) -> Outcome:
        """So many rounds of passes with isolation and without."""
        self.measure("isolation-memory")
        read = self.measure("gradient-isolation", iterations=iterations)
        return self._keep("gradient_isolation", outcomes.gradient_isolation(read))

    def run_leyline_serialization_benchmark(self, iterations: int = 10000) -> Outcome:
        """At least so many messages, a third of each kind, in rounds of a thousand calls, and 30 rounds of each."""
        rounds = max(FEWEST, -(-iterations // (len(SERIALISED) * CALLS)))
        self.measure("message-kinds")
        read = self.measure(*SERIALISED, iterations=rounds)
        return self._keep("leyline_serialization", outcomes.leyline_serialization(read))

    def run_kd_benchmark(self, iterations: int = 100) -> Outcome:
        """So many rounds of steps with a teacher and without."""
        self.measure("teacher-memory", "checkpoint-memory")
        read = self.measure("training-throughput-kd", iterations=iterations)
        return self._keep("knowledge_distillation", outcomes.knowledge_distillation(read))

    def run_48hour_stability_test(self, test_duration_hours: float = 48.0) -> Outcome:
        """Ctrl-C ends it early; what was recorded counts. `esper bench soak --out FILE` is the one that can go on."""
        with logs_on_stderr():
            soaked = soak(test_duration_hours)
        self.readings.add(soaked.figures())
        return self._keep("48hour_stability", outcomes.stability(soaked))

    def generate_benchmark_report(self, stability_hours: float = HOURS_IN_REPORT) -> dict[str, Any]:
        """Run every benchmark, with a soak of six minutes, and tell what each came to."""
        self.run_kernel_loading_benchmark()
        self.run_gradient_isolation_benchmark()
        self.run_leyline_serialization_benchmark()
        self.run_kd_benchmark()
        self.run_48hour_stability_test(stability_hours)
        return {
            "benchmark_timestamp": datetime.now().isoformat(),
            "system_info": this_machine().as_fields(),
            "benchmark_results": self.benchmark_results,
            "performance_regressions": self.check_for_regressions(),
            "overall_health": self.assess_overall_performance(),
        }

    def check_for_regressions(self) -> dict[str, bool]:
        """Per row, whether it was slower than its baseline in this run and in the one before it; {"no_baseline": True}
        where no store was given, or this machine has no earlier run in it."""
        if not self.num_sessions:
            return {"no_baseline": True}
        return {row: bool(alarms) for row, alarms in self.alarms.items()}

    def assess_overall_performance(self) -> str:
        """healthy; warning with one issue, critical with more; no_data before the first benchmark."""
        if not self.benchmark_results:
            return "no_data"
        num_issues = len(outcomes.issues(self.benchmark_results))
        return ("healthy", "warning", "critical")[min(num_issues, 2)]

    def _keep(self, name: str, outcome: Outcome) -> Outcome:
        self.benchmark_results[name] = outcome
        return outcome
