"""Whoever resumes from a checkpoint that the log begins behind is told that decisions are missing."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from esper.bus.connect import Redis, ServerClock
from esper.bus.names import key
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.runtime.beside.recall import Recaller


@pytest.mark.parametrize(("oldest", "is_told"), [("7000-0", True), ("5000-0", False)])
async def test_a_log_that_was_trimmed_beyond_the_checkpoint(
    redis: Redis, run_id: str, oldest: str, is_told: bool
) -> None:
    keys = MasterKeyring.new(time.time_ns()).derive(run_id, [Role.WORKER])
    openers = {"decisions": Opener(keys, name="worker-0", guard=None, accept=[Domain.DECISION])}
    clock = ServerClock()
    await clock.look(redis)
    recaller = Recaller(redis, run_id, "worker-0", openers, clock)
    await redis.execute_command("XADD", key(run_id, "decisions"), oldest, "m", b"a decision")

    with capture_logs() as told:
        found = await recaller.recall(pb.Recall(after="5000-0", roster_generation=1), (5000, 0))

    assert found == []
    assert [each["after"] for each in told if each["event"] == "decisions.not_recalled"] == ["5000-0"] * is_told
