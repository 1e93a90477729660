"""A run of which `esper up` starts one torchrun, and that the ranks: steered alike, in a region each, killed, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.client import Controller
from esper.runtime.watching.liveness import Workers
from tests.system.launched import ENDED, gone_past, step_of
from tests.system.processes import Esper, logs_of, stop

FILE = """
name = "ranks"
runs_dir = "{place}/runs"
regions = ["r0", "r1"]
ready_s = 200.0

[trainer]
count = 1
command = [
    "torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=2", "-m", "esper.examples.torchrun_digits",
]
stop_by = "file"
finish_s = 200.0
stop_s = 60.0

[trainer.environment]
ESPER_CHECKPOINTS = "{place}/checkpoints"
ESPER_CHECKPOINT_EVERY = "50"
GLOO_SOCKET_IFNAME = "lo"
OMP_NUM_THREADS = "1"
"""
START_S = 200.0  # only a failure waits for it


def both_past_a_checkpoint(workers: Workers) -> bool:
    """The first one is made before step 51, and is made by then."""
    return len(workers) == 2 and all(beat.step > 110 for beat in workers.values())


async def steered(kill: Callable[[], None]) -> tuple[list[int], dict[str, str]]:
    """Steps before which a seed grew, was culled, and after a rank was killed another one grew; regions by worker."""
    async with Controller.connect("ranks") as run:
        await run.epochs(1, START_S)
        steps = [await step_of(await run.germinate("s", site="head", blueprint="mlp", hidden=8))]
        steps.append(await step_of(await run.cull("s")))
        killed = await run.until(both_past_a_checkpoint, START_S)
        kill()
        await run.until(gone_past(killed), START_S)
        steps.append(await step_of(await run.germinate("again", site="hidden", blueprint="lora", rank=2)))
    return steps, {name: beat.region for name, beat in killed.items()}


def test_ranks_of_a_torchrun_are_steered_alike_and_begin_anew_below_esper_up(
    swift: Callable[..., Esper], runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runtime / "run.toml").write_text(FILE.format(place=runtime))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    up = swift("up", "-f", runtime / "run.toml")
    up.says("trainer-0 is ready")

    steps, regions = asyncio.run(steered(lambda: stop(up.pid_of("esper.examples.torchrun_digits", " RANK=1 "))))
    told = swift("down", "ranks").ended()

    assert (told, up.ended()) == (0, 0)
    assert steps == sorted(steps)
    assert regions == {"worker-0": "r0", "worker-1": "r1"}
    said = logs_of(runtime)["trainer-0.log"]
    [(_, last, digest), (_, *other)] = sorted(ENDED.findall(said))
    assert other == [last, digest] and int(last) > steps[-1]
    assert said.count("run.resumed") == 2
    assert "is started again" not in up.text
