"""One life of a seed on two ranks: on a Cluster over whose three nodes the run lies, and past a primary that dies."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from esper.bus import names
from esper.bus.names import new_run_id
from esper.leyline import contracts as pb
from tests.faults.processes import wait_until
from tests.many_servers import Cluster, Watched, a_cluster, watched_servers
from tests.system.launched import REGIONS, Launched
from tests.system.processes import PATIENCE_S, Start

Servers = Cluster | Watched


@pytest.fixture(params=["cluster", "sentinels"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    directory, binary = Path(tempfile.mkdtemp(prefix="esper-")), request.config.getoption("--redis-server")
    with a_cluster(directory, binary) if request.param == "cluster" else watched_servers(directory, binary) as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def launched(servers: Servers, tmp_path: Path, born: Start, launch: Start) -> Iterator[Launched]:
    run_id = spread(servers) if isinstance(servers, Cluster) else new_run_id("test")
    started = Launched(servers.url, run_id, tmp_path, run_id, start=born, launch=launch)
    yield started
    started.close()


def spread(cluster: Cluster) -> str:
    """A run whose own keys and those of its two regions lie on three nodes."""
    for _ in range(1_000):
        run_id = new_run_id("test")
        keys = [names.key(run_id, "global"), *(names.region_key(run_id, region, "telemetry") for region in REGIONS)]
        if len({cluster.holder(key) for key in keys}) == 3:
            return run_id
    raise AssertionError("no run lies on three nodes")


def said(launched: Launched, key: str) -> list[Any]:
    return asyncio.run(launched.messages(key))


def sent(launched: Launched) -> list[int]:
    """How many packets of each rank were stored. Their stream may not hold all: what is settled goes in two minutes."""
    told = said(launched, names.key(launched.run_id, "receipts"))
    reports = [each.ended.report for each in told if isinstance(each, pb.RunRecord) and each.HasField("ended")]
    return [report.packets - report.shed for report in reports]


def counted(launched: Launched) -> tuple[int, int]:
    """Packets, and those of which the tiers say that they are missing."""
    told = said(launched, names.key(launched.run_id, "global"))
    return sum(each.num_packets for each in told), sum(each.num_gaps - each.num_late for each in told)


def fail(servers: Servers) -> None:
    """Behind Sentinels the primary dies, and comes back as a replica; a Cluster's nodes go on as they are."""
    if isinstance(servers, Watched):
        servers.fail_over()
        servers.come_back()


async def live(launched: Launched, servers: Servers) -> list[pb.CommandReceipt]:
    """A seed's life, up to a graft and its end; the receipts of every rank."""
    receipts: list[pb.CommandReceipt] = []
    async with launched.controller() as run:
        await run.epochs(1, timeout_s=90.0)
        receipts += await (await run.germinate("s", site="head", blueprint="mlp", hidden=8)).applied()
        receipts += await (await run.create_seed_optimizer("s", lr=3e-3)).applied()
        await asyncio.to_thread(fail, servers)
        receipts += await (await run.start_training("s")).applied()
        receipts += await run.persist(run.start_grafting, "s", steps=20, attempts=60)
        receipts += await (await run.cull("s")).applied()
    return receipts


def test_a_seeds_life_and_every_packet_counted_once(launched: Launched, servers: Servers) -> None:
    receipts = asyncio.run(live(launched, servers))
    last = launched.ended()
    packets = sent(launched)
    wait_until(lambda: sum(counted(launched)) >= sum(packets), "every packet is counted", PATIENCE_S)
    found, missing = counted(launched)

    assert [receipt.worker for receipt in receipts] == ["worker-0", "worker-1"] * 5
    assert all(one.step == other.step for one, other in zip(receipts[::2], receipts[1::2], strict=True))
    assert last[0] == last[1]
    assert len(packets) == len(REGIONS) and all(packets)
    assert found + missing == sum(packets)
    assert missing == 0 or isinstance(servers, Watched)  # a primary may die before its replica has heard all
    assert {process.poll() for name, process in launched.started.items() if name not in launched.nodes} == {None}
    assert "Traceback" not in "".join(map(launched.said, launched.started))
