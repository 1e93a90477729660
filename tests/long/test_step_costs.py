"""What an ordinary step leaves undone, and that nothing is lost by it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.gates.ring import Ring
from esper.kasmina.isolation.monitor import GradientIsolationMonitor, HostTensors
from esper.leyline import contracts as pb
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, train, unsteered

torch.set_num_threads(1)


@pytest.mark.parametrize("kinds", ["n", "t", "nt", "nnntt", "tn"])
@pytest.mark.parametrize("num", [1, 4, 5, 11, 90])
def test_numbers_and_tensors_stand_in_a_ring_in_the_order_in_which_they_came(kinds: str, num: int) -> None:
    ring = Ring(5, torch.device("cpu"))
    for at in range(num):
        ring.add(at / 8 if kinds[at % len(kinds)] == "n" else torch.tensor(at / 8))

    newest = ring.newest(min(num, 3))

    assert newest is not None
    assert sorted(newest.tolist()) == [at / 8 for at in range(num)][-3:]
    assert [ring.values[at % 5].item() for at in range(num)[-5:]] == [at / 8 for at in range(num)[-5:]]


def test_numbers_added_after_a_look_follow_those_before_it() -> None:
    ring = Ring(4, torch.device("cpu"))
    for at in range(7):
        ring.add(float(at))
        ring.window()

    assert ring.values.tolist() == [4.0, 5.0, 6.0, 3.0]


def test_a_ring_is_a_window_from_the_number_on_that_fills_it() -> None:
    ring = Ring(3, torch.device("cpu"))

    seen = []
    for at in range(4):
        ring.add(float(at))
        seen.append(None if (window := ring.window()) is None else window.tolist())

    assert seen == [None, None, [0.0, 1.0, 2.0], [3.0, 1.0, 2.0]]


def test_a_loss_counts_as_it_was_when_it_was_noted() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")

    with run.step() as step:
        loss = backward(host, 1).detach()
        noted = loss.item()
        step.loss(loss)
        loss.zero_()
    table = run.status.rows.table()

    assert table is not None
    assert dict(zip(table.names, table.values, strict=True))["loss"] == noted


def test_without_a_seed_no_step_looks_for_the_hosts_tensors() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    train(run, host, 2)
    every, watched = run.executor.settings.walk_every, run.executor._watched

    host.register_buffer("first", torch.ones(1))
    train(run, host, 2 * every)
    dormant = [*watched.names]
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 1)
    germinated = [*watched.names]
    host.register_buffer("second", torch.ones(1))
    train(run, host, every)

    assert "first" not in dormant
    assert "first" in germinated
    assert "second" in watched.names and "second" not in germinated


def test_a_weight_that_was_exchanged_while_nobody_looked_is_watched() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Linear(4, 3)

        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            with torch.no_grad():
                host.weight.add_(1.0)
            delta: Tensor = self.own(x)
            return delta

    host = nn.Linear(4, 3)
    tensors = HostTensors(host)
    host.weight = nn.Parameter(torch.ones(3, 4))
    tensors.lapse()
    monitor, x = GradientIsolationMonitor(Writing(), tensors), torch.ones(2, 4)

    _, violation = monitor.run(lambda module, x, h: module(x, h), x, host(x).detach(), closely=False)

    assert violation == "the seed wrote to weight in place"


def test_events_of_a_row_keep_their_place_among_rows_that_tell_of_nothing() -> None:
    host = new_host()
    rows = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body").status.rows
    warning = pb.TelemetryLevel.TELEMETRY_WARNING
    for step in (1, 2, 3):
        if step == 2:
            rows.note(warning, "something.happened")
        rows.add(step, step, {"loss": 1.0})

    table = rows.table()

    assert table is not None
    assert [(event.row, event.description) for event in table.events] == [(1, "something.happened")]
    assert list(table.level) == [pb.TelemetryLevel.TELEMETRY_INFO, warning, pb.TelemetryLevel.TELEMETRY_INFO]
