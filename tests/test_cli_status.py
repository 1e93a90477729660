"""`esper status`: where each worker and each seed stands."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from esper.cli.main import app
from esper.leyline import contracts as pb
from tests.scripted import ScriptedRun, seed_state


async def shown(run: str, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper status`."""
    result = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--run", run, *arguments])
    return result.exit_code, result.stdout, result.stderr


async def test_names_of_seeds_and_sites_move_no_cursor(run: ScriptedRun) -> None:
    await run.beat(3, pb.SeedState(seed_id="s\x1b[2J", site="head\r", stage=pb.SeedLifecycleStage.SEED_STAGE_TRAINING))

    _, out, _ = await shown(run.name)

    assert out.splitlines()[2] == "  s?[2J at head?  TRAINING  alpha 0"


async def test_each_worker_and_each_seed_has_a_line(run: ScriptedRun) -> None:
    await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING))

    _, out, _ = await shown(run.name)
    lines = out.splitlines()

    assert lines[0] == f"run {run.run_id}: 2 workers heard of"
    assert lines[1].startswith("worker-0  rank 0/2  region-0  step 300  epoch 3  loss 0.5")
    assert lines[2] == "  s0 at head (lora)  BLENDING  alpha 0.25"
    assert lines[3].startswith("worker-1  rank 1/2")


async def test_an_embargoed_seed_says_until_when(run: ScriptedRun) -> None:
    culled = seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    culled.embargo_until_epoch = 8
    await run.beat(3, culled, workers=("worker-0",))

    _, out, _ = await shown(run.name)
    lines = out.splitlines()

    assert lines[0] == f"run {run.run_id}: 1 worker heard of"
    assert lines[2] == "  s0 at head (lora)  EMBARGOED until epoch 8  alpha 0.25"


async def test_json_is_one_object(run: ScriptedRun) -> None:
    await run.beat(3, workers=("worker-1",))

    _, out, _ = await shown(run.run_id, "--json")
    said = json.loads(out)

    assert said["run"] == run.run_id
    assert said["workers"]["worker-1"]["epoch"] == "3"


async def test_a_run_that_has_not_begun_has_no_workers(run: ScriptedRun) -> None:
    assert await shown(run.name) == (0, f"run {run.run_id}: 0 workers heard of\n", "")


async def test_an_unknown_run_is_one_line_that_names_the_live_ones(run: ScriptedRun) -> None:
    status, _, err = await shown("nowhere")

    assert (status, err.count("\n")) == (2, 1)
    assert run.run_id in err
