"""What counts as a step, and what becomes of seeds in a step that took none."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
import torch
from structlog.testing import capture_logs
from torch import nn

from esper.errors import SettingError, TrainingError
from esper.kasmina.gates import ledger
from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.exchange import HEARTBEAT_S
from tests.link_kit import Mortal
from tests.optimizer_kit import same
from tests.seed_kit import Bypassing, Host, Op, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, train, unsteered


def with_training_seed(scaler: torch.amp.GradScaler | None = None) -> tuple[Host, Session]:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head", scaler=scaler)
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 2)
    return host, run


def seed_parameters(run: Session) -> list[torch.Tensor]:
    return [parameter.detach().clone() for _, parameter in run.executor.seeds["s0"].trainable()]


def seed_gradients(run: Session) -> list[torch.Tensor]:
    return [p.grad for _, p in run.executor.seeds["s0"].trainable() if p.grad is not None]


def test_micro_batches_of_one_step_count_one_step() -> None:
    host, run = with_training_seed()
    moments = run.optimizers._seeds["s0"].torch.state

    with run.step() as step:
        for number in (1, 2, 3):
            loss = backward(host, number)
        run.optimizer.step()
        run.optimizer.zero_grad()
        step.loss(loss)

    assert run.step_number == 5
    assert run.status.rows.made == 4
    assert {int(state["step"]) for state in moments.values()} == {3}
    assert run.executor.seeds["s0"].meter.fits.total == 3


def test_a_step_in_which_the_loop_steps_nothing_drops_the_seeds_gradients() -> None:
    host, run = with_training_seed()
    before = seed_parameters(run)

    with run.step():
        backward(host, 1)
        assert seed_gradients(run)

    assert seed_gradients(run) == []
    assert same(seed_parameters(run), before)


def test_a_seed_that_is_paused_after_a_step_that_raised_keeps_no_gradient_of_it() -> None:
    host, run = with_training_seed()

    with pytest.raises(ValueError, match="in its second micro-batch"):
        raise_late(run, host)
    order(run, pb.AdaptationCommand(version=1, command_id="p", pause_command=pb.PauseCommand(seed_id="s0")))
    train(run, host, 1)

    assert seed_gradients(run) == []


def raise_late(run: Session, host: Host) -> None:
    with run.step():
        backward(host, 7)
        raise ValueError("in its second micro-batch")


def test_a_step_that_raised_leaves_the_seeds_no_gradients_for_the_next() -> None:
    host, run = with_training_seed()
    other, undisturbed = with_training_seed()

    with pytest.raises(ValueError, match="in its second micro-batch"):
        raise_late(run, host)
    run.optimizer.zero_grad()  # and the loop goes on
    train(run, host, 1)
    train(undisturbed, other, 1)

    seeds = [[p for _, p in each.executor.seeds["s0"].trainable()] for each in (run, undisturbed)]
    assert all(torch.equal(a, b) for a, b in zip(*seeds, strict=True))


def test_a_loss_that_goes_back_outside_of_a_step_teaches_the_seeds_nothing() -> None:
    host, run = with_training_seed()
    other, undisturbed = with_training_seed()

    for _ in range(2):  # as a generator's does, through its critic: the critic's gradients are cleared before its step
        torch.autograd.backward(-10.0 * host(torch.randn(8, 8)).square().mean())
        run.optimizer.zero_grad()
        train(run, host, 1)
    train(undisturbed, other, 2)

    assert same(seed_parameters(run), seed_parameters(undisturbed))
    assert same(*(list(each.executor.seeds["s0"].meter.fits.values) for each in (run, undisturbed)))


@pytest.mark.parametrize("raises", [False, True])
def test_losses_that_go_back_for_ever_outside_of_steps_pile_nothing_up(
    raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_OUTSIDE", 8)
    host, run = with_training_seed()
    other, undisturbed = with_training_seed()
    meter, before = run.executor.seeds["s0"].meter, float(run.executor.seeds["s0"].meter.num_batches)
    if raises:
        with suppress(ValueError), run.step():
            raise ValueError("in the loop")

    for number in range(20):
        backward(host, number)
        assert len(meter.ledger.calls) < 8
    run.optimizer.zero_grad()
    train(run, host, 1)
    train(undisturbed, other, 1)

    assert float(meter.num_batches) == before + 21
    assert same(*(list(each.executor.seeds["s0"].meter.fits.values) for each in (run, undisturbed)))


def test_a_step_of_however_many_micro_batches_counts_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_OUTSIDE", 8)
    host, run = with_training_seed()
    noted = run.executor.seeds["s0"].meter.ledger

    with run.step():
        for number in range(20):
            backward(host, number)
        assert len(noted.calls) == 20
        run.optimizer.step()

    assert noted.calls == []


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_skips_is_skipped_by_the_seeds_too(fused: bool) -> None:
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = unsteered(host, optimizer, "body", scaler=scaler)
    train_scaled(run, host, scaler, 1.0)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
    train_scaled(run, host, scaler, 1.0)
    before, host_before = seed_parameters(run), [p.detach().clone() for p in host.parameters()]

    train_scaled(run, host, scaler, float("inf"))
    after, host_after = seed_parameters(run), [p.detach().clone() for p in host.parameters()]
    left = seed_gradients(run)
    train_scaled(run, host, scaler, 1.0)

    assert same(after, before) and same(host_after, host_before)
    assert left == []
    assert scaler.get_scale() == 512.0
    assert not same(seed_parameters(run), before)


def test_seeds_learn_the_same_whatever_the_scale_is() -> None:
    """Powers of two scale without rounding, so the unscaled gradients agree to the last few bits."""
    runs = []
    for scale in (1.0, 4096.0):
        host, scaler = new_host(), torch.amp.GradScaler("cpu", init_scale=scale)
        run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.1), "body", scaler=scaler)
        train_scaled(run, host, scaler, 1.0)
        order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
        for _ in range(5):
            train_scaled(run, host, scaler, 1.0)
        runs.append(run)

    for one, other in zip(seed_parameters(runs[0]), seed_parameters(runs[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def train_scaled(run: Session, host: nn.Module, scaler: torch.amp.GradScaler, factor: float) -> None:
    with run.step():
        inputs = torch.linspace(-1, 1, 64).reshape(8, 8)
        torch.autograd.backward(scaler.scale(host(inputs).square().mean() * factor))
        scaler.step(run.optimizer)
        scaler.update()
        run.optimizer.zero_grad()


def test_a_site_whose_hook_is_bypassed_raises_in_the_first_step() -> None:
    host = Bypassing()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")

    with pytest.raises(TrainingError, match="step 1: no slot fired at head"):
        train(run, host, 1)


class Sometimes(Host):
    """Leaves its site out of every second step."""

    turn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        inner = self.body(x) if self.turn % 2 else x[:, :6]
        y: torch.Tensor = self.head(inner)
        return y


@pytest.mark.parametrize("to_none", [True, False])
def test_a_step_may_leave_out_a_site_or_the_whole_model(to_none: bool) -> None:
    host = Sometimes()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")

    for number in range(1, 7):
        with run.step():
            if number != 4:
                backward(host, number)
            run.optimizer.step()
            run.optimizer.zero_grad(set_to_none=to_none)

    assert run.step_number == 7


def test_a_command_carried_out_shows_as_an_event_of_the_next_packet() -> None:
    host, run = with_training_seed()
    run.exchange.rows.table()
    order(run, on_seed(Op.SEED_OP_STABILIZE))
    train(run, host, 1)

    table = run.exchange.rows.table()

    assert table is not None
    assert [(event.description, event.attributes["command"]) for event in table.events] == [
        ("command.failed", "s0-SEED_OP_STABILIZE")
    ]


def test_the_log_names_the_stage_that_a_command_led_to_and_no_detail_where_there_is_none() -> None:
    host, run = with_training_seed()
    order(run, on_seed(Op.SEED_OP_CULL))

    with capture_logs() as events:
        train(run, host, 1)

    [told] = [event for event in events if event["event"] == "command.applied"]
    assert (told["command"], told["stage"]) == ("s0-SEED_OP_CULL", "EMBARGOED")
    assert all(told.values())


def test_a_rollback_to_a_snapshot_that_gave_way_fails_and_changes_nothing() -> None:
    host, run = with_training_seed()
    before = [parameter.detach().clone() for parameter in host.parameters()]
    rollback = pb.AdaptationCommand(
        version=1,
        command_id="back",
        command_type=pb.CommandType.COMMAND_ROLLBACK,
        rollback_command=pb.RollbackCommand(target_step=1),
    )
    order(run, rollback)

    run.begin_step()

    boundary = run.exchange.boundary
    [receipt] = boundary._applied[boundary.round_applied].receipts
    assert (receipt.status, receipt.reason) == (pb.ReceiptStatus.RECEIPT_FAILED, pb.ReasonCode.REASON_NO_SNAPSHOT)
    assert same(before, [parameter.detach().clone() for parameter in host.parameters()])


def test_a_breaker_that_opens_is_told_at_once_and_training_goes_on() -> None:
    host, run = with_training_seed()
    run.exchange.rows.table()
    for _ in range(3):
        run.executor.seeds["s0"].breaker.fail()

    train(run, host, 2)
    table = run.exchange.rows.table()

    assert table is not None
    assert [(event.description, event.level, event.row) for event in table.events] == [
        ("breaker.opened", pb.TelemetryLevel.TELEMETRY_CRITICAL, 0)
    ]
    assert table.events[0].attributes["reason"].startswith("s0: 0 isolation violations")
    assert [request.operation for request in run.executor.requests()] == [Op.SEED_OP_CULL]


def test_examples_that_a_loop_tells_of_are_summed_up_in_heartbeats() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")

    for examples in (32, 8):
        with run.step() as step:
            step.loss(backward(host, 1), examples=examples)

    assert run.status.heartbeat(3, 0).examples == 40
    with pytest.raises(SettingError, match="examples is -1"), run.step() as step:
        step.loss(backward(host, 1), examples=-1)


def test_a_loss_may_be_a_number_and_what_is_none_is_refused_by_name() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")

    with run.step() as step:
        loss = backward(host, 1)
        step.loss(loss.item())
    table = run.exchange.rows.table()

    assert table is not None
    assert table.values[list(table.names).index("loss")] == loss.item()
    with pytest.raises(SettingError, match="loss is 'a str'; expected a tensor of one element"), run.step() as step:
        step.loss("0.5")  # type: ignore[arg-type]


def test_an_optimizer_that_goes_up_is_refused_and_left_as_it_was() -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, maximize=True)

    with pytest.raises(SettingError, match=r"^optimizer's maximize is True; expected False, with the negated loss"):
        unsteered(host, optimizer, "body")

    assert not optimizer._optimizer_step_post_hooks


def test_a_heartbeat_is_told_where_something_is_begun_that_takes_long_and_else_twice_a_second() -> None:
    host, link = new_host(), Mortal()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    run.exchange.link = link
    began = time.monotonic()

    with run.busy(pb.BusyWith.BUSY_CHECKPOINT):
        begun = [beat.busy for beat in link.beats]
    train(run, host, 60)

    assert begun == [pb.BusyWith.BUSY_CHECKPOINT]
    assert len(link.beats) <= 3 + (time.monotonic() - began) / HEARTBEAT_S
    num_told, run._beat_at, run._step.look_at = len(link.beats), 0.0, 0.0
    train(run, host, 1)
    assert len(link.beats) > num_told
