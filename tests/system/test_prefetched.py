"""A published germination takes a kernel that was made while nobody waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus.embedded import EmbeddedRedis
from esper.bus.names import new_run_id
from tests.seed_kit import Op
from tests.session_kit import on_seed
from tests.system.processes import Start
from tests.system.town import Town


@pytest.fixture
def town(runtime: Path, born: Start) -> Iterator[Town]:
    with EmbeddedRedis(runtime / "redis") as server:
        town = Town(server, new_run_id("prefetched"), runtime, servers=["coordinator"], start=born)
        yield town
        town.close()


def test_a_loop_too_fast_for_its_commits_finds_the_kernel_all_the_same(town: Town) -> None:
    pool = town.run.executor.kernels.pool
    town.settle_down()

    town.publish(on_seed(Op.SEED_OP_GERMINATE, site="0", blueprint_id="lora", parameters={"rank": 2}))
    town.steps_until(lambda: "s0" in town.run.executor.seeds)

    assert (pool.stats.hits, pool.stats.misses, len(pool)) == (1, 1, 0)
    assert len(town.run.executor.prefetch) == 0
