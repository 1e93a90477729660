"""What a piece of work takes and leaves behind, beside sizes that are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from esper.bench.arm import Ready
from esper.bench.machine import gpus
from esper.bench.memory.profiler import MemoryProfiler, in_memory, memory_of
from esper.bench.memory.tracking import per_call
from esper.bench.runner import run
from esper.bench.timing.collector import settled_collector
from tests.bench_kit import BRIEF, arm, nothing, row, told

MB = 1_000_000


@pytest.fixture(autouse=True)
def _others_objects_are_frozen() -> Iterator[None]:
    """What other tests have loaded into this process is not collected again and again."""
    with settled_collector():
        yield


def filled(num_bytes: int) -> object:
    return np.ones(num_bytes, dtype=np.uint8)


def test_a_call_that_lets_all_go_has_a_peak_and_retains_nothing() -> None:
    account = memory_of(Ready(lambda: filled(40 * MB)))

    assert 40 * MB <= account.found["peak traced"] < 41 * MB
    assert 39 * MB <= account.found["peak RSS"] < 60 * MB
    assert account.found["retained traced"] < MB and account.found["retained RSS"] < 10 * MB


def test_what_a_call_keeps_is_retained() -> None:
    kept = list[object]()

    account = memory_of(Ready(lambda: kept.append(filled(30 * MB))))

    assert 30 * MB <= account.found["retained traced"] < 31 * MB
    assert 29 * MB <= account.found["retained RSS"] < 40 * MB


def test_a_profiler_around_a_block_says_its_peak() -> None:
    profiler = MemoryProfiler()
    with profiler:
        held = filled(20 * MB)

    assert held is not None
    assert 20 * MB <= profiler.get_peak_memory()["peak traced"] < 21 * MB


@pytest.mark.skipif(bool(gpus()), reason="this machine has one")
def test_memory_of_a_device_that_is_not_there_says_why() -> None:
    results = run([in_memory(row(arm("ours", nothing), arm("theirs", nothing, missing="no theirs")))], BRIEF)

    assert told(results.figures, "ours", "fragmentation").label.startswith("not measured: torch is not loaded, or")
    assert told(results.figures, "theirs", "peak RSS").label == "not measured: no theirs"
    assert told(results.figures, "ours", "peak traced").unit == "B"


def test_objects_that_the_collector_tracks_are_counted_per_call_with_those_made_once_left_out() -> None:
    once = list[object]()

    def three_lists() -> object:
        if not once:
            once.extend([[] for _ in range(1_000)])
        return [[], []]

    assert per_call(three_lists) == 3.0
    assert per_call(lambda: b"bytes are not tracked") == 0.0
