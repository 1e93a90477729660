"""Benchmarks by registration: implementations of one's own beside the baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch

from esper.bench.agreement import DisagreementError
from esper.bench.arm import Ready
from esper.bench.custom.benchmarks import BenchmarkRunner, compare_implementations
from esper.bench.custom.implementations import (
    Attention,
    FlashAttentionBaseline,
    PyTorchNativeBaseline,
    PyTorchOptimizedBaseline,
    fused,
    native,
)
from esper.bench.timing.blame import ArmFailedError
from esper.errors import SettingError

CONFIG = {"batch_size": 2, "sequence_length": 16, "d_model": 32, "num_heads": 4}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of torch spin while they wait for each other, which takes seconds a call where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def twice(*tensors: torch.Tensor) -> torch.Tensor:
    """More work than it need be."""
    native(*tensors)
    return fused(*tensors)


def unmasked(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Other maths: each place sees the later ones too."""
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values)


def runner(*names: str) -> BenchmarkRunner:
    made = BenchmarkRunner()
    for name in names:
        made.register_baseline(Attention(name=name))
    return made


@pytest.mark.parametrize("benchmark_type", ["inference", "training"])
def test_all_baselines_come_to_the_same_and_a_speedup_is_the_quotient_of_medians(benchmark_type: str) -> None:
    custom = BenchmarkRunner(device=torch.device("cpu"))
    custom.register_baseline(PyTorchNativeBaseline(torch.device("cpu")))
    custom.register_baseline(PyTorchOptimizedBaseline())
    custom.register_baseline(FlashAttentionBaseline())
    custom.register_optimization(Attention(name="ours", attend=twice))

    results = custom.run_benchmark(name="Custom_Test", benchmark_type=benchmark_type, config=CONFIG, trials=5)

    speedup = results.speedup("ours")
    base, ours = (results.figure(name, "p50").value for name in ("PyTorch Native", "ours"))
    assert speedup is not None and base is not None and ours is not None
    assert speedup.low <= speedup.ratio <= speedup.high and speedup.ratio == pytest.approx(base / ours)
    assert results.figure("Flash Attention", "p50").num == 5
    first, *lines = results.summary()
    assert first == "Custom_Test, beside PyTorch Native:"
    assert any(line.startswith(f"  ours: {speedup.ratio:.3f}x ") and line.endswith(" (measured)") for line in lines)


def test_other_maths_is_refused() -> None:
    custom = runner("PyTorch Native")
    custom.register_optimization(Attention(name="ours", attend=unmasked))

    with pytest.raises(DisagreementError, match="ours does not come to what PyTorch Native comes to"):
        custom.run_benchmark("Custom_Test", "inference", CONFIG, 5)


class Broken:
    name = "broken"

    def missing(self) -> str:
        return ""

    def set_up(self, benchmark_type: str, config: Mapping[str, int]) -> Ready:
        raise ImportError(f"no {benchmark_type} of {len(config)}")


def test_an_implementation_that_does_not_load_fails_the_run_and_nothing_stands_in_for_it() -> None:
    custom = runner("PyTorch Native")
    custom.register_optimization(Broken())

    with pytest.raises(ArmFailedError, match="broken failed: ImportError: no inference of 4"):
        custom.run_benchmark("Custom_Test", "inference", CONFIG, 5)


def test_one_for_a_device_that_is_not_there_says_so() -> None:
    custom = runner("PyTorch Native")
    custom.register_optimization(Attention("cuda:99", "far"))
    if torch.cuda.device_count() > 99:
        pytest.skip("this machine has it")

    results = custom.run_benchmark("Custom_Test", "inference", CONFIG, 5)

    assert results.speedup("far") is None and results.latency_ms("far") is None
    assert "  far: not measured: torch sees no CUDA device, cuda:99 was asked for" in [*results.summary()]


def test_implementations_are_compared_by_metric() -> None:
    told = compare_implementations(
        [PyTorchNativeBaseline(), PyTorchOptimizedBaseline()], CONFIG, metrics=["latency", "throughput"], trials=5
    )

    assert [*told] == ["PyTorch Native", "PyTorch Optimized"]
    latency, throughput = told["PyTorch Native"]["latency"], told["PyTorch Native"]["throughput"]
    assert latency is not None and throughput == pytest.approx(2 * 1e3 / latency)


def test_more_scores_take_more_memory() -> None:
    config = CONFIG | {"sequence_length": 512, "batch_size": 1}

    told = compare_implementations([PyTorchNativeBaseline(), PyTorchOptimizedBaseline()], config, ["memory"], trials=3)

    naive, fused_peak = (told[name]["memory"] for name in ("PyTorch Native", "PyTorch Optimized"))
    assert naive is not None and fused_peak is not None
    assert naive > 512 * 512 * 4 * 4 > fused_peak


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CONFIG | {"num_heads": 5}, "d_model is 32; expected a multiple of num_heads, 5"),
        (CONFIG | {"batch_size": 0}, "batch_size of the benchmark's config is 0; expected an integer above 0"),
        ({"batch_size": 1}, "sequence_length of the benchmark's config is not set"),
    ],
)
def test_a_config_that_does_not_fit_is_named(config: dict[str, int], words: str) -> None:
    with pytest.raises(ArmFailedError, match=words):
        runner("PyTorch Native").run_benchmark("Custom_Test", "inference", config, 5)


def test_what_a_benchmark_can_not_do_without_is_named() -> None:
    with pytest.raises(SettingError, match="expected one at least: register_baseline"):
        BenchmarkRunner().run_benchmark("Custom_Test", "inference", CONFIG, 5)
    with pytest.raises(SettingError, match="the implementation's name is 'one'"):
        runner("one", "one")
    with pytest.raises(SettingError, match="the metric is 'energy'; expected one of latency, memory, throughput"):
        compare_implementations([PyTorchNativeBaseline()], CONFIG, ["energy"])
