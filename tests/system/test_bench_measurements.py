"""Rows that take seconds: the compiler's counters through a seed's life, and what stays in memory."""

from __future__ import annotations

import pytest

from esper.bench.effort import EFFORTS
from esper.bench.registry import chosen, registered
from esper.bench.results import Results
from esper.bench.runner import run
from esper.bench.work.recompiling import CHANGES, measure


# Warnings of torch's own compiler, where it traces an autograd function.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_graphs_are_compiled_for_the_host_and_its_first_graft_and_never_again() -> None:
    figures = {figure.arm: figure for figure in measure(EFFORTS["quick"]) if figure.stat in ("graphs", "recompiles")}

    assert figures["host alone"].value and figures["graft"].value
    later = [figures[name].value for name in list(CHANGES)[2:]]
    assert later == [0.0] * len(later)
    assert figures["all"].met is True


def results(*names: str) -> Results:
    return run(chosen(names, registered()), EFFORTS["quick"])


def test_checkpointing_saves_where_gradients_flow_and_nothing_under_no_grad() -> None:
    figures = {(figure.shape, figure.stat): figure for figure in results("checkpoint-memory").figures}

    assert figures["blocks", "kept, gradients flow, of plain"].met is True
    for shape in ("blocks", "large"):
        without = figures[shape, "new, no_grad, of plain"]
        assert without.met is False and without.value and without.value >= 1.0


def test_fragmentation_on_a_gpu_is_not_guessed_without_one() -> None:
    figures = {figure.arm: figure for figure in results("memory-fragmentation").figures}

    if figures["GPU"].value is None:
        assert figures["GPU"].label.startswith("not measured: no CUDA device")
    assert figures["CPU"].value is not None
