"""What a shell offers: sub-commands, options, live runs and their seeds, in bounded time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import names
from esper.cli import asking, completing
from esper.cli.main import app
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from tests.forked_kit import Forge, script
from tests.scripted import ScriptedRun, seed_state


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of whoever runs the tests is offered; nor does the limit, which is 2 s, end the process of the tests."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(completing, "LONGEST_S", 100.0)


def offered(forge: Forge, line: str, **environment: str) -> list[str]:
    """As bash asks, in a process of its own: what may stand for the last word of the line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_ESPER_COMPLETE": "complete_bash"}
    program = script("from esper.cli.main import app; app(prog_name='esper')")
    answer = forge.ended(program, environment={**asked, **environment})
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.split()


def test_sub_commands_and_options_are_offered() -> None:
    asked = {"COMP_WORDS": "esper publish cu", "COMP_CWORD": "2", "_ESPER_COMPLETE": "complete_bash"}

    below = CliRunner().invoke(app, [], prog_name="esper", env=asked)
    options = CliRunner().invoke(app, [], prog_name="esper", env=asked | {"COMP_WORDS": "esper status --j"})

    assert (below.exit_code, below.stdout.split()) == (0, ["cull"])
    assert (options.exit_code, options.stdout.split()) == (0, ["--json"])


async def test_names_of_live_runs_their_seeds_and_their_sites_are_offered(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ASK_S", 30.0)  # a busy machine is no failure
    beat = pb.Heartbeat(
        version=1,
        worker="worker-0",
        world_size=1,
        region="r0",
        time_ns=1,
        seeds=[seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING)],
        sites=["stem", "head"],
    )
    await run.say("heartbeats", Role.WORKER, "worker-0", beat)

    seeds = await asyncio.to_thread(completing.seeds, run.name)
    sites = await asyncio.to_thread(completing.sites, None)  # of the only one

    assert {run.name, run.run_id} <= set(completing.live_runs())
    assert (seeds, sites) == (["s0"], ["stem", "head"])


async def test_ids_of_dead_letters_are_offered_the_newest_first(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ASK_S", 30.0)
    monkeypatch.setattr(asking, "MOST_LETTERS", 2)
    words = ("XADD", names.key(run.run_id, "dead"), "*", "reason", "poison")
    added: list[bytes] = [await run.redis.execute_command(*words) for _ in range(3)]

    assert await asyncio.to_thread(completing.letters, run.name) == [added[2].decode(), added[1].decode()]


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("publish germinate s1 --site ", "site"),
        ("publish cull ", "seed"),
        ("dead show ", "letter_id"),
        ("dead purge ", "ids"),
        ("status --run ", "run"),
    ],
)
def test_what_a_command_takes_is_what_is_offered(line: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(completing.SOURCES, source, lambda run: [f"a-{source}"])
    asked = {"COMP_WORDS": f"esper {line}", "COMP_CWORD": str(line.count(" ") + 1), "_ESPER_COMPLETE": "complete_bash"}

    assert CliRunner().invoke(app, [], prog_name="esper", env=asked).stdout.split() == [f"a-{source}"]


@pytest.mark.parametrize(("command", "found"), [("verify", ["mine-1"]), ("diff mine-1", ["mine-1"]), ("status", [])])
def test_runs_that_have_ended_are_offered_where_their_logs_are_read(
    command: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine-1/log/run.jsonl", "mine-2/log/commands.jsonl"):
        (tmp_path / "runs" / name).parent.mkdir(parents=True)
        (tmp_path / "runs" / name).touch()
    line = f"esper {command} {'--run ' if command == 'status' else ''}mine-"
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_ESPER_COMPLETE": "complete_bash"}

    answer = CliRunner().invoke(app, [], prog_name="esper", env=words)

    assert (answer.exit_code, answer.stdout.split()) == (0, found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("dead list --reason bad_", ["bad_seal"]),
        ("publish emergency --reason ", []),
        ("publish emergency --level ", ["notice", "elevated", "conservative", "halt"]),
        ("tail --level ", ["debug", "info", "warning", "error", "critical"]),
        ("tail --tier regi", ["region", "regional"]),
        ("publish start-grafting s0 --curve ", ["linear", "cosine", "sigmoid"]),
        ("publish circuit-breaker s0 --state ", ["open", "closed"]),
        ("publish structural-pruning --phase v", ["validation_only"]),
        ("publish grant-steps ", ["host", "s0"]),
    ],
)
def test_choices_are_offered_in_their_order(line: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "seeds", lambda run: ["s0"])
    asked = {"COMP_WORDS": f"esper {line}", "COMP_CWORD": str(line.count(" ") + 1), "_ESPER_COMPLETE": "complete_bash"}

    answer = CliRunner().invoke(app, [], prog_name="esper", env=asked)

    assert (answer.exit_code, answer.stdout.split()) == (0, found)


def test_bash_keeps_the_order_of_what_is_offered() -> None:
    shows = "from esper.cli.main import app; app(['--show-completion'], prog_name='esper')"
    script = 'offers="$("$0" -c "$1")"; eval "$offers"; complete -p esper'

    said = subprocess.run(["bash", "--norc", "-c", script, sys.executable, shows], capture_output=True, text=True)

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "complete -o default -o nosort -F _esper_completion esper\n"


def test_blueprints_are_offered_by_the_names_that_they_have() -> None:
    assert set(completing.blueprints(None)) == set(BLUEPRINTS)


def test_a_redis_that_is_away_offers_nothing_and_holds_nobody(forge: Forge, tmp_path: Path) -> None:
    away = {"ESPER_RUN": "gone", "ESPER_REDIS_URL": f"unix://{tmp_path}/none.sock", "ESPER_KEYRING": "none.json"}

    assert offered(forge, "esper publish cull ", **away) == []
