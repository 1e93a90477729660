"""Benchmarks by registration: implementations beside named baselines, over the same runner as the suite's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from esper.bench.agreement import Tolerance
from esper.bench.arm import Arm
from esper.bench.custom.implementations import Implementation
from esper.bench.effort import Effort
from esper.bench.figures import Figure, Ratio
from esper.bench.memory.profiler import in_memory
from esper.bench.row import Comparison
from esper.bench.timing.comparing import compared
from esper.errors import SettingError

TRIALS = 30
CLOSE = Tolerance(relative=1e-3, absolute=1e-4)
"""What float32 kernels of one formula may differ by."""
METRICS = ("latency", "memory", "throughput")
SECONDS = 600.0
PEAKS = ("peak RSS", "peak allocated on CUDA")
"""The second goes before the first."""


@dataclass(frozen=True, slots=True)
class BenchmarkResults:
    """Figures of one benchmark. `reference`: the first baseline, which speed-ups are of."""

    name: str
    reference: str
    config: Mapping[str, int]
    figures: tuple[Figure, ...]

    def figure(self, implementation: str, stat: str) -> Figure:
        """Raises SettingError where there is none."""
        for one in self.figures:
            if (one.arm, one.stat) == (implementation, stat):
                return one
        arms = sorted({one.arm for one in self.figures})
        raise SettingError("the implementation and statistic", (implementation, stat), f"one of {', '.join(arms)}")

    def speedup(self, implementation: str) -> Ratio | None:
        """How many times as fast as the reference at the median, with its interval; None where it was not measured."""
        ratio = self.figure(implementation, "p50").vs
        if ratio is None:
            return None
        return Ratio(ratio.arm, 1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low, ratio.floor, ratio.verdict)

    def latency_ms(self, implementation: str) -> float | None:
        return self.figure(implementation, "p50").value

    def throughput(self, implementation: str) -> float | None:
        """Samples a second, at the median."""
        latency = self.latency_ms(implementation)
        return None if latency is None else 1e3 * self.config.get("batch_size", 1) / latency

    def summary(self) -> Iterator[str]:
        """A line an implementation, slower ones as well."""
        yield f"{self.name}, beside {self.reference}:"
        for arm in dict.fromkeys(one.arm for one in self.figures if one.stat == "p50" and one.arm != self.reference):
            label, speedup = self.figure(arm, "p50").label, self.speedup(arm)
            if speedup is None:
                yield f"  {arm}: {label}"
            else:
                within = f"[{speedup.low:.3f}, {speedup.high:.3f}]"
                yield f"  {arm}: {speedup.ratio:.3f}x {within}, {speedup.verdict} ({label})"


class BenchmarkRunner:
    """Holds implementations; knows nothing of what they do. `device` is told of in the shape, they are on their own."""

    def __init__(self, device: Any = "cpu", seed: int = 0) -> None:
        self._device, self._seed = str(device), seed
        self._baselines: list[Implementation] = []
        self._optimizations: list[Implementation] = []

    def register_baseline(self, implementation: Implementation) -> None:
        """The first one is the reference. Raises SettingError where the name is taken."""
        self._baselines.append(self._named(implementation))

    def register_optimization(self, implementation: Implementation) -> None:
        """Raises SettingError where the name is taken."""
        self._optimizations.append(self._named(implementation))

    def run_benchmark(
        self, name: str, benchmark_type: str, config: Mapping[str, int], trials: int = TRIALS
    ) -> BenchmarkResults:
        """All that is registered, in `trials` interleaved rounds.

        Raises ArmFailedError for one that fails and DisagreementError for one that comes to something else.
        """
        row = self.row(name, benchmark_type, config)
        effort = Effort("full", trials, trials, 0.0, SECONDS, self._seed)
        return BenchmarkResults(name, row.arms[0].name, config, tuple(compared(row, effort)))

    def row(self, name: str, benchmark_type: str, config: Mapping[str, int]) -> Comparison:
        """As a row for the suite, so that `esper bench run --from FILE` has it too."""
        if not self._baselines:
            raise SettingError("the baselines", [], "one at least: register_baseline() comes first")
        arms = tuple(
            Arm(each.name, partial(each.set_up, benchmark_type, config), each.missing)
            for each in (*self._baselines, *self._optimizations)
        )
        shape = f"{benchmark_type} on {self._device}, {', '.join(f'{key} {value}' for key, value in config.items())}"
        return Comparison(name, "custom", arms, shape=shape, tolerance=CLOSE)

    def _named(self, implementation: Implementation) -> Implementation:
        taken = [each.name for each in (*self._baselines, *self._optimizations)]
        if implementation.name in taken:
            raise SettingError("the implementation's name", implementation.name, f"one that is not of {taken}")
        return implementation


def compare_implementations(
    implementations: Sequence[Implementation],
    config: Mapping[str, int],
    metrics: Sequence[str] = METRICS,
    benchmark_type: str = "inference",
    trials: int = TRIALS,
) -> dict[str, dict[str, float | None]]:
    """By implementation and metric: latency in ms, throughput in samples/s, memory as peak bytes of one call.

    The first is the reference. None: not measured here. Raises as run_benchmark() does.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise SettingError("the metric", metric, f"one of {', '.join(METRICS)}")
    runner = BenchmarkRunner()
    for each in implementations:
        runner.register_baseline(each)
    found: dict[str, dict[str, float | None]] = {each.name: {} for each in implementations}
    if "latency" in metrics or "throughput" in metrics:
        results = runner.run_benchmark("comparison", benchmark_type, config, trials)
        for name, told in found.items():
            told |= {"latency": results.latency_ms(name), "throughput": results.throughput(name)}
    if "memory" in metrics:
        peaks = _peaks(runner.row("comparison", benchmark_type, config))
        for name, told in found.items():
            told["memory"] = peaks.get(name)
    return {name: {metric: told[metric] for metric in metrics} for name, told in found.items()}


def _peaks(row: Comparison) -> dict[str, float]:
    """Of the device's allocator where there is one, else of the process."""
    figures = list(in_memory(row).measure(Effort("quick", TRIALS, TRIALS, 0.0, SECONDS)))
    told = {
        stat: {one.arm: one.value for one in figures if one.stat == stat and one.value is not None} for stat in PEAKS
    }
    return {arm: value for peaks in told.values() for arm, value in peaks.items()}
