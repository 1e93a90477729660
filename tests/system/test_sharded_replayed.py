"""Two ranks that hold a model together live through a graft, a fossil, a rollback and a cull, and do so again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from esper.cli.running.ports import free_port
from esper.leyline import contracts as pb
from esper.runtime.history import logbook
from tests.faults.processes import ROOT, Running
from tests.seed_kit import Op
from tests.session_kit import Command, on_seed, own_optimizer
from tests.system.processes import PATIENCE_S, Esper, Start
from tests.system.scripted import Script
from tests.system.sharded import FLIPS, NUM_ORDERS, NUM_STEPS
from tests.system.two_ranks_kit import ROSTER, Decision, Stage, decide, decisions, last_words, messages, wait_until

RUN_ID = "split-00000001"
"""By it the seeds' weights are drawn, and with them what the gates say."""
CULLED = "s2"
STAGES = {"s0": "SEED_STAGE_FOSSILIZED", "s1": "SEED_STAGE_FOSSILIZED", CULLED: "SEED_STAGE_EMBARGOED"}


def all_decisions() -> list[Decision]:
    """Those of two ranks below DDP but for the pause, and a seed that is culled."""
    culled: list[Command] = [
        on_seed(Op.SEED_OP_GERMINATE, CULLED, site="head", blueprint_id="mlp"),
        own_optimizer(CULLED, 0.02),
        on_seed(Op.SEED_OP_START_TRAINING, CULLED),
        on_seed(Op.SEED_OP_CULL, CULLED),
    ]
    for index, each in enumerate(culled):
        each.command_id += f"-culled.{index}"
    return [*decisions()[:-1], (150, culled[:3], {}), (165, culled[3:], {})]


def started(script: Script, directory: Path, begin: Start) -> list[Running]:
    common = {"WORLD_SIZE": str(len(ROSTER)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"GLOO_SOCKET_IFNAME": "lo", NUM_ORDERS: str(len(all_decisions()))}
    return [
        begin(
            "tests.system.sharded", directory / f"{rank}.log", script.environment(name) | common | {"RANK": str(rank)}
        )
        for rank, name in enumerate(ROSTER)
    ]


@pytest.fixture(scope="module")
def log(redis_url: str, tmp_path_factory: pytest.TempPathFactory, ranks: Start) -> Path:
    """What the run has left."""
    directory = tmp_path_factory.mktemp("split")
    script = Script(redis_url, RUN_ID, directory)
    both = started(script, directory, ranks)
    try:
        wait_until(both, lambda: {beat.worker for beat in messages(script, "heartbeats")} == {*ROSTER})
        for number, (step, commands, fields) in enumerate(all_decisions(), 1):
            decide(script, number, step, *commands, **fields)
        assert [rank.wait(PATIENCE_S) for rank in both] == [0, 0], last_words(directory)
    finally:
        for rank in both:
            rank.kill()
            rank.wait()
    said = [each.ended.report for each in messages(script, "receipts") if isinstance(each, pb.RunRecord)]
    stages = [{seed.seed_id: Stage.Name(seed.stage) for seed in report.seeds} for report in said if report.seeds]
    assert stages == [STAGES] * len(ROSTER)
    assert asyncio.run(logbook.keep(redis_url, RUN_ID, script.observer_keyring, directory / "log"))
    return directory / "log" / logbook.EXPORT


@pytest.fixture
def replayed(log: Path, runtime: Path) -> Iterator[Any]:
    """Runs it again; status and result."""
    begun = []

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        script = " ".join(["-m tests.system.sharded", *words])
        command = Esper(runtime, "replay", log, "--json", "--script", script, told={"PYTHONPATH": str(ROOT)})
        begun.append(command)
        return command.ended(), json.loads(command.said[-1])

    yield run
    for command in begun:
        command.kill()


def test_each_rank_comes_to_its_own_parts_again(replayed: Any) -> None:
    status, told = replayed()

    assert (status, told["equal"], told["steps"], told["differences"]) == (0, True, NUM_STEPS, [])
    assert told["parts_replayed"] == told["part_digests"] and len({*told["part_digests"]}) == 2
    assert told["replayed"] == [told["parameter_digest"]] * 2


def test_the_rank_of_which_one_element_flips_is_named(replayed: Any) -> None:
    status, told = replayed(FLIPS)

    assert (status, told["equal"]) == (1, False)
    assert told["differences"] == ["worker-1 holds other parts of what fully_shard has split"]
    same = [now == then for now, then in zip(told["parts_replayed"], told["part_digests"], strict=True)]
    assert same == [True, False] and told["replayed"] == [told["parameter_digest"]] * 2
