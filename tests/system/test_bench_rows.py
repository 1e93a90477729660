"""Rows of the suite whose set-up takes its time: run whole, a few rounds each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.bench.effort import Effort
from esper.bench.registry import registered
from esper.bench.row import Comparison
from esper.bench.runner import run
from esper.bench.work import attached
from esper.bench.work.hosts import SMALL

ROWS = registered()
FEW = Effort("quick", 3, 3, 1.0, 0.0)
HEAVY = [
    "graft-cull",
    "gpt2-graft-cull",
    "gpt2-step",
    "kernel-load",
    "state-transition",
    "forward-overhead",
    "step-overhead",
    "emergency-rollback",
    "emergency-rollback-large",
    "emergency-checkpoint",
    "optimizer-message",
]


@pytest.mark.parametrize("name", HEAVY)
def test_every_arm_of_a_row_is_measured(name: str) -> None:
    row = ROWS[name]
    assert isinstance(row, Comparison)

    found = run([row], FEW)

    assert found.failures == ()
    medians = {figure.arm: figure.value for figure in found.figures if figure.stat == "p50"}
    assert all(medians[arm.name] for arm in row.arms if arm.missing is None or not arm.missing())


def test_rounds_of_the_barrier_are_made_by_real_processes() -> None:
    found = run([ROWS["consensus-round"]], FEW)

    assert found.failures == ()
    figures = {(figure.arm, figure.stat): figure for figure in found.figures}
    rounds, ping = figures["eight runtimes", "p50"], figures["redis PING", "p50"]
    unseen = figures["eight runtimes", "not seen by all"].value
    assert unseen is not None and (rounds.num + unseen, rounds.target) == (50, 50.0)
    assert rounds.value and ping.value and rounds.value > 4 * ping.value  # proposal, vote, commit: each sent and read


def test_an_attached_step_is_timed_by_two_clocks_while_messages_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "PER_S", 200.0)  # whose cost is not looked at

    size = replace(SMALL, num_warm=2)
    found = list(attached.measure(attached.row_of("attached", size), size, 8, FEW))

    figures = {(figure.row, figure.arm, figure.stat): figure for figure in found}
    for clock in ("attached", "attached, processor"):
        assert all(figures[clock, arm, "p50"].value for arm in ("bare", "bare again", "attached"))
        targets = [figures[clock, "attached", stat].target for stat in ("ratio", "p99 ratio")]
        assert targets == [1.01, 1.05]
    assert figures["attached", "load", "rate"].value
    assert figures["attached", "attached alone", "p50"].num == 2
    assert figures["attached", "attached alone", "p99"].value is None


def test_kinds_of_messages_isolation_and_limits_are_counted_whole() -> None:
    found = run([ROWS[name] for name in ("message-kinds", "isolation-memory", "machine-limits")], FEW)

    assert found.failures == ()
    kinds = [figure for figure in found.figures if figure.row == "message-kinds"]
    assert len(kinds) == 18 * 7
    beside = {figure.arm: figure.vs.arm for figure in kinds if figure.vs is not None}
    assert len(beside) == 18 * 2
    assert beside["heartbeat, seal"] == beside["heartbeat, open"] == "heartbeat, hmac"
    memory = {figure.arm: figure.value or 0.0 for figure in found.figures if figure.row == "isolation-memory"}
    assert memory["two seeds training"] >= memory["host alone"] > 0
    assert all(figure.value for figure in found.figures if figure.row == "machine-limits")
