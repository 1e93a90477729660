"""What does not belong on a stream is refused where it lies, with a reason, and the run goes on."""

from __future__ import annotations

import time

import torch

from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.system.town import REGION, WORKER, Town, rate

FUTURE_NS = 3_600_000_000_000


def bad_messages(town: Town) -> list[bytes]:
    """Junk, too much, too little, another type than any of the streams carries, and one from the future."""
    keys = town.master.derive(town.run_id, [Role.WORKER, Role.CONTROLLER])
    good = Sealer(keys, Role.CONTROLLER, "bad").seal(rate(0.5))
    signal = pb.EmergencySignal(version=1, level=pb.EmergencyLevel.EMERGENCY_ELEVATED, reason="x", origin=WORKER)
    other = Sealer(keys, Role.WORKER, "bad").seal(signal)
    early = Sealer(keys, Role.CONTROLLER, "bad", clock_ns=lambda: time.time_ns() + FUTURE_NS).seal(rate(0.5))
    return [b"", b"junk", good + b"x" * (1 << 20), good[: len(good) // 2], other, early]


def test_bad_messages_on_every_stream_are_refused_and_the_run_goes_on(town: Town) -> None:
    logs = ("commands", "optimizer", "votes", "decisions", "heartbeats")
    streams = [names.key(town.run_id, name) for name in logs]
    streams += [names.region_key(town.run_id, REGION, name) for name in ("telemetry", "regional")]
    town.publish(rate(0.05))
    town.steps_until(lambda: town.run.optimizers.hyperparameters()["lr"] == 0.05)

    for stream in streams:
        for body in bad_messages(town):
            town.order("XADD", stream, "*", "m", body)
        town.order("XADD", stream, "*", "other", "field")
    town.publish(rate(0.025))
    town.steps_until(lambda: town.run.optimizers.hyperparameters()["lr"] == 0.025)
    report = town.run.close()
    town.await_counted(report.packets - report.shed)

    assert (report.commands_applied, report.commands_failed) == (2, 0)
    assert [process.poll() for process in town.servers.values()] == [None, None, None]
    for name in (*town.servers, "runtime"):
        assert "Traceback" not in town.log(name)
        assert "message.refused" in town.log(name)
    receipts = [each for each in town.said("receipts") if isinstance(each, pb.CommandReceipt)]
    rejected = [receipt for receipt in receipts if receipt.status == pb.ReceiptStatus.RECEIPT_REJECTED]
    reasons = {pb.ReasonCode.Name(receipt.reason) for receipt in rejected}
    assert all(receipt.detail for receipt in rejected)
    assert len(reasons) >= 3, reasons


def test_a_loss_that_is_no_number_is_critical_at_once_and_counted(town: Town) -> None:
    for _ in range(40):
        with town.run.step() as step:
            step.loss(torch.tensor(float("nan")))
    report = town.run.close()
    town.await_counted(report.packets)

    [signal] = town.said("emergency")
    assert (signal.reason, signal.origin, dict(signal.attributes)) == ("value.non_finite", WORKER, {"loss": "nan"})
    assert town.log("runtime").count("training.critical") == 1
    folded = [aggregate.metrics["loss"] for aggregate in town.said("global") if "loss" in aggregate.metrics]
    assert sum(statistics.num_non_finite for statistics in folded) == 40
