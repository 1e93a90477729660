"""A primary that dies under three Sentinels: the run goes on at the replica, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus import connect, durability, names
from esper.bus.client import sentinel
from esper.bus.faults import LostError, UnavailableError
from esper.leyline import contracts as pb
from tests.many_servers import Watched, watched_servers
from tests.system.processes import Start
from tests.system.town import REGION, WORKER, Town, rate

NUM_BEFORE = 8


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    binary = request.config.getoption("--redis-server")
    durable = {"min-replicas-to-write": "1", "min-replicas-max-lag": "10"}
    with watched_servers(directory, binary, **durable) as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def town(watched: Watched, run_id: str, tmp_path: Path, born: Start) -> Iterator[Town]:
    town = Town(watched.servers[0], run_id, tmp_path, url=watched.url, start=born)
    yield town
    town.close()


async def publish_durably(town: Town, *values: float) -> list[float]:
    """Those that were acknowledged, up to the first that was not."""
    acknowledged = []
    async with connect.writer(town.url) as writer:
        publisher = durability.publisher(writer, await durability.admit(writer, "durable"), "durable")
        for value in values:
            try:
                await publisher.add(names.key(town.run_id, "commands"), town.sealed_now(rate(value)))
            except UnavailableError:
                break
            acknowledged.append(value)
    return acknowledged


def applied(town: Town) -> Counter[str]:
    receipts = [each for each in town.said("receipts") if isinstance(each, pb.CommandReceipt)]
    done = pb.ReceiptStatus.RECEIPT_APPLIED
    return Counter(each.command_id for each in receipts if each.worker == WORKER and each.status == done)


async def pinged(url: str) -> bool:
    async with connect.reader(url) as reader:  # a writer has ten seconds for all of it
        return bool(await reader.ping())


def test_who_connects_while_the_sentinels_choose_waits_for_the_one_in_charge(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel, "CHOOSING_S", 60.0)  # they take longer where a machine stands still
    before = watched.in_charge()
    watched.servers[before].kill()

    assert asyncio.run(pinged(watched.url))
    assert watched.in_charge() != before


def test_a_primary_that_no_sentinel_knows_is_an_error_at_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel, "CHOOSING_S", math.inf)  # who waits for one waits for ever

    with pytest.raises(LostError, match="No master found for 'nosuch'"):
        asyncio.run(pinged(watched.url.replace("/primary", "/nosuch")))


def test_the_run_goes_on_and_every_acknowledged_command_is_applied_once(watched: Watched, town: Town) -> None:
    assert asyncio.run(publish_durably(town, 0.5)) == [0.5]
    town.steps_until(lambda: town.run.optimizers.hyperparameters()["lr"] == 0.5)
    values = [0.001 * number for number in range(1, NUM_BEFORE + 1)]

    acknowledged = asyncio.run(publish_durably(town, *values))
    watched.fail_over()  # what was just acknowledged is the replica's to give
    watched.come_back()
    after = asyncio.run(publish_durably(town, 0.25))
    town.steps_until(lambda: applied(town).keys() >= {f"lr-{value}" for value in acknowledged + after})
    report = town.run.close()
    stored = {packet.sequence for frame in town.said("telemetry", REGION) for packet in frame.packets}
    num_stored = min(stored) - 1 + len(stored)  # the first may be settled, and gone
    town.await_counted(num_stored)

    assert (acknowledged, after) == (values, [0.25])
    assert set(applied(town).values()) == {1}
    assert (report.commands_applied, report.commands_failed) == (NUM_BEFORE + 2, 0)
    assert town.num_counted == num_stored
    assert {process.poll() for process in town.servers.values()} == {None}
    assert "Traceback" not in town.log("runtime") + town.log("coordinator")
    assert "bus.lost" in town.log("runtime")
