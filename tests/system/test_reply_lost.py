"""A controller whose replies are lost: each of its commands takes effect once, and it is told so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

import esper
from esper.bus.names import key
from esper.client import Controller
from esper.leyline import contracts as pb
from tests.faults.proxy import Proxy
from tests.faults.server import Server, replicated
from tests.system.loop import Loop
from tests.system.processes import Start
from tests.system.steered import Answers, Steered

NUM_COMMANDS = 3


@pytest.fixture(params=["fast", "durable"])
def mode(request: pytest.FixtureRequest) -> str:
    """Of the controller alone."""
    return str(request.param)


@pytest.fixture
def server(short_directory: Path) -> Iterator[Server]:
    """Which confirms a write by its replica, to whoever asks."""
    with replicated(short_directory / uuid4().hex[:8]) as (primary, _):
        yield primary


class Trained(Loop):
    """By whatever steers it."""

    def __init__(self, steered: Steered) -> None:
        super().__init__()
        self.run = esper.attach(self.model, optimizer=self.optimizer, sites=["2"], environment=steered.worker)


async def cut_off(_: Controller, steered: Steered, line: Proxy, mode: str) -> Answers:
    """Over a line that loses the first reply to each command. A second effect of any of them would be a failure."""
    told: Answers = {}
    keyring = steered.controller["ESPER_KEYRING"]
    async with Controller.connect(steered.run_id, redis_url=line.url, keyring=keyring, durability=mode) as run:
        for name, ask in (
            ("germinate", partial(run.germinate, "s0", site="2", blueprint="lora")),
            ("create", partial(run.create_seed_optimizer, "s0", lr=0.01)),
            ("train", partial(run.start_training, "s0")),
        ):
            line.cut_reply(b"XADD", 0)
            told[name] = await (await ask()).applied()
        told["refused"] = await refused(run)
    return told


async def refused(run: Controller) -> list[pb.CommandReceipt]:
    """One answer for each command that was not let in."""
    found: list[pb.CommandReceipt] = []
    async with aclosing(run.telemetry("receipts", since="0")) as receipts:
        async for opened in receipts:
            receipt = opened.message
            if isinstance(receipt, pb.CommandReceipt) and receipt.status == pb.ReceiptStatus.RECEIPT_REJECTED:
                found.append(receipt)
            if len(found) == NUM_COMMANDS:
                break
    return found


def test_each_command_takes_effect_once_and_its_controller_is_told(
    server: Server, mode: str, run_id: str, tmp_path: Path, born: Start
) -> None:
    steered = Steered(server.url, run_id, tmp_path, born)
    with Proxy(server.url) as line, steered.controlled(partial(cut_off, steered=steered, line=line, mode=mode)):
        loop = Trained(steered)
        loop.steps_until(lambda: steered.is_over)
        report = loop.run.close()

    told, stats = steered.told, server.ask("INFO", "commandstats")
    entries = [fields[b"m"] for log in ("commands", "optimizer") for fields in entries_of(server, key(run_id, log))]
    assert line.done["reply_cut"] == NUM_COMMANDS
    assert sorted(Counter(entries).values()) == [2] * NUM_COMMANDS
    assert {receipt.reason for receipt in told["refused"]} == {pb.ReasonCode.REASON_REPLAYED}
    assert (report.commands_applied, report.commands_failed) == (NUM_COMMANDS, 0)
    assert ("cmdstat_wait" in stats) == (mode == "durable")


def entries_of(server: Server, stream: str) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in server.ask("XRANGE", stream, "-", "+")]
