"""Every command that README and docs/ show is run, or says why not: those of the tutorial by tests/system/."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import connect
from esper.cli import manual
from esper.cli.main import HOMES, app, load
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from tests.pages import Block, blocks, pages
from tests.scripted import ScriptedRun, cancelled, listed, seed_state

ELSEWHERE = {
    "docs/tutorial.md": "tests/system/test_tutorial.py",
    "docs/benchmarks.md": "made by the suite: the command that measured it",
}
HISTORY = ("decisions.md", "seeds.md", "benchmarks.md")
"""Pages that tell of what was, or are made by what they measured."""
PLAIN = ("mkdir", "chmod", "cat", "ls", "printf")
"""Other commands that a page may show without a mark: they harm nothing."""
TRAIN = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""


def shown() -> list[Block]:
    """Blocks of commands that a reader types."""
    every = [block for page in pages() for block in blocks(page)]
    return [block for block in every if block.language == "sh" and block.page not in ELSEWHERE]


def run_here() -> list[Block]:
    return [block for block in shown() if block.not_run is None]


def group_of(block: Block) -> str:
    """Of a page what publishes stands apart: there is much of it on one page."""
    return "publish" if block.commands[0].startswith("esper publish") else "other"


@pytest.fixture
async def demo(
    short_directory: Path,
    redis_url: str,
    redis: connect.Redis,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> AsyncIterator[ScriptedRun]:
    """A live run of this name, which applies whatever is asked of it, and the files that a reader has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    with listed(short_directory, redis_url, redis, monkeypatch, "demo") as run:
        run.master.derive(run.run_id, [Role.OBSERVER]).save(run.keyring.with_name("observer.json"))
        await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING))
        serving = [asyncio.create_task(run.serve(stream=stream)) for stream in ("commands", "optimizer")]
        yield run
        for task in serving:
            await cancelled(task)


def test_there_are_pages_to_walk() -> None:
    assert len(run_here()) > 40
    assert all((Path(__file__).resolve().parent.parent / page).is_file() for page in ELSEWHERE)


def test_every_block_that_is_not_run_says_why() -> None:
    assert [str(block) for block in shown() if block.not_run is not None and len(block.not_run) < 5] == []


def test_no_block_is_of_a_kind_that_is_not_looked_at() -> None:
    fences = {page: len(re.findall(r"^\s*```", page.read_text(), re.MULTILINE)) for page in pages()}

    assert {page.name: num for page, num in fences.items() if num != 2 * len(blocks(page))} == {}
    assert {block.language for page in pages() for block in blocks(page)} <= {"sh", "python", "py", "toml"}


def test_only_commands_that_harm_nothing_are_run_here() -> None:
    lines = [(str(block), line) for block in run_here() for line in block.commands]
    strange = [each for each in lines if each[1].split()[0] not in ("esper", *PLAIN)]

    assert strange == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("page", "group"), sorted({(block.page, group_of(block)) for block in run_here()}))
async def test_every_command_of_a_page_does_what_it_says(page: str, group: str, demo: ScriptedRun) -> None:
    commands = [
        (str(block), command)
        for block in run_here()
        if (block.page, group_of(block)) == (page, group)
        for command in block.commands
    ]

    done = {each: await asyncio.to_thread(typed, each[1]) for each in commands}

    assert {each: said for each, (status, said) in done.items() if status != 0} == {}


def typed(command: str) -> tuple[int, str]:
    """Exit status and output of one line; ours in this process, which spares an interpreter each time."""
    words = shlex.split(command)
    if words[0] == "esper":
        result = CliRunner().invoke(app, words[1:])
        return result.exit_code, result.output
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr


def test_no_command_is_shown_where_it_would_not_be_run() -> None:
    indented = [
        f"{page.name}: {line}"
        for page in pages()
        for line in page.read_text().splitlines()
        if line.startswith("    esper ") and "[OPTIONS]" not in line and not line.startswith("    esper/")
    ]

    assert indented == []


def test_every_command_named_in_a_sentence_exists_with_its_options() -> None:
    named = {
        (page.name, span)
        for page in pages()
        if page.name not in HISTORY
        for span in re.findall(r"`(esper [a-z][^`]*)`", page.read_text())
    }

    assert len(named) > 40
    assert sorted(each for each in named if not known(each[1])) == []


def known(span: str) -> bool:
    """Whether a command line names a command that there is, and options that it has."""
    words = span.split()[1:]
    if words[0] not in HOMES:
        return False
    command, options = load(words[0]), {"--help"}
    for word in words[1:]:
        below = getattr(command, "commands", {})
        if below and not command.invoke_without_command and word[0].islower() and word not in below:
            return False
        command = below.get(word, command)
    options |= {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    return all(word.partition("=")[0] in options for word in words if word.startswith("--"))


def test_every_page_of_the_manual_is_of_a_command_that_there_is() -> None:
    from tests.test_cli_help import every_command

    assert manual.PAGES.keys() - every_command().keys() == set()
