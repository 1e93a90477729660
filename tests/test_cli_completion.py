"""What a shell offers: sub-commands, options, live runs and their seeds, in bounded time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli import completing
from esper.cli.main import app
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from tests.scripted import ScriptedRun, seed_state


def offered(line: str, **environment: str) -> list[str]:
    """As bash asks, in a process of its own: what may stand for the last word of the line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_ESPER_COMPLETE": "complete_bash"}
    answer = subprocess.run(
        [sys.executable, "-P", "-c", "from esper.cli.main import app; app(prog_name='esper')"],
        env={**os.environ, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.split()


def test_sub_commands_and_options_are_offered() -> None:
    asked = {"COMP_WORDS": "esper publish cu", "COMP_CWORD": "2", "_ESPER_COMPLETE": "complete_bash"}

    below = CliRunner().invoke(app, [], prog_name="esper", env=asked)
    options = CliRunner().invoke(app, [], prog_name="esper", env=asked | {"COMP_WORDS": "esper status --j"})

    assert (below.exit_code, below.stdout.split()) == (0, ["cull"])
    assert (options.exit_code, options.stdout.split()) == (0, ["--json"])


async def test_names_of_live_runs_and_their_seeds_are_offered(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "ASK_S", 30.0)  # a busy machine is no failure
    await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING))

    seeds = await asyncio.to_thread(completing.seeds, run.name)

    assert {run.name, run.run_id} <= set(completing.live_runs())
    assert seeds == ["s0"]


def test_blueprints_are_offered_by_the_names_that_they_have() -> None:
    assert set(completing.blueprints(None)) == set(BLUEPRINTS)


def test_a_redis_that_is_away_offers_nothing_and_holds_nobody(tmp_path: Path) -> None:
    away = {"ESPER_RUN": "gone", "ESPER_REDIS_URL": f"unix://{tmp_path}/none.sock", "ESPER_KEYRING": "none.json"}

    assert offered("esper publish cull ", **away) == []
