"""Every command that README and docs/ show is typed by a test: here, where no comment names another file."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import connect
from esper.cli import manual
from esper.cli.main import HOMES, app, load
from esper.leyline.kinds import Role
from esper.tolaria.checkpoints.keyed import KeyringSigner
from esper.tolaria.checkpoints.store import Store
from tests.checkpoint_kit import put
from tests.pages import ROOT, Block, blocks, pages
from tests.reader import Ids, left, reading
from tests.scripted import ScriptedRun

TYPED_WHOLE = {"docs/tutorial.md": "tests/system/test_tutorial.py"}
"""Pages of which another test types all that there is, without a mark."""
NOT_RUN = {
    (
        "docs/deploy.md",
        "python3 -m venv",
    ): "needs a package index, and systemd as the first process; tests/system/test_docs_systemd.py types the rest",
    ("docs/deploy.md", "esper keys new"): "needs a cluster, and an image in a registry; "
    "tests/test_deploy_kubernetes.py checks the manifests",
    ("docs/health.md", "docker compose --profile"): "starts containers; "
    "tests/system/test_compose.py starts their commands",
    ("docs/howto/blueprint.md", "pip install ."): "needs a package index; "
    "tests/test_docs_howto.py puts what it installs on the path",
    (
        "docs/measure.md",
        "esper bench run",
    ): "minutes; tests/system/test_bench_rows.py and test_bench_revisions.py run such rows",
}
"""The whole of what no test types, by its page and three first words. One more needs a reason as good as these."""
MEASURED = (("docs/benchmarks.md", "docs/benchmarks-full.md"), "esper bench run ")
"""Pages, and the command that has measured them, in minutes."""
HISTORY = ("decisions.md", "seeds.md", "benchmarks.md", "benchmarks-full.md")
"""Pages that tell of what was, or are made by what they measured."""
PLAIN = ("mkdir", "chmod", "cat", "ls", "printf", "make")
"""Other commands that a page may show without a mark: they harm nothing."""
OF_A_SHELL = ("--install-completion",)
"""What asks which shell has started it."""


def shown() -> list[Block]:
    """Blocks of commands that a reader types, but for those of such pages."""
    every = [block for page in pages() for block in blocks(page)]
    return [block for block in every if block.language == "sh" and block.page not in TYPED_WHOLE]


def run_here() -> list[Block]:
    return [block for block in shown() if not block.mark]


def group_of(block: Block) -> str:
    """Of a page what publishes stands apart: there is much of it on one page."""
    return "publish" if block.commands[0].startswith("esper publish") else "other"


@pytest.fixture
async def demo(
    short_directory: Path, redis_url: str, redis: connect.Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[ScriptedRun]:
    """A live run of this name, and the files that a reader has."""
    monkeypatch.chdir(tmp_path)
    for variable in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    left(tmp_path)
    async with reading(short_directory, redis_url, redis, monkeypatch) as run:
        signer = KeyringSigner(run.master.derive(run.run_id, [Role.WORKER]))
        put(Store(tmp_path / "checkpoints" / run.run_id / "rank-0", signer, 3), 100, by=signer, run_id=run.run_id)
        yield run


def test_there_are_pages_to_walk() -> None:
    assert len(run_here()) > 60
    assert all(not block.mark for page in TYPED_WHOLE for block in blocks(ROOT / page))
    assert all(page.rpartition("/")[2] in (ROOT / test).read_text() for page, test in TYPED_WHOLE.items())


def test_every_block_that_another_test_types_is_typed_by_it() -> None:
    others = {block.told for block in shown() if block.mark == "run by"}

    assert others
    assert [test for test in sorted(others) if f'typed_by("{test}")' not in (ROOT / test).read_text()] == []


def test_nothing_else_is_left_out() -> None:
    left_out = {(block.page, " ".join(block.commands[0].split()[:3])): block.told for block in shown() if block.not_run}
    named = [test for why in NOT_RUN.values() for test in re.findall(r"tests/\S+\.py", why)]

    assert left_out == NOT_RUN
    assert len(named) == len(NOT_RUN)
    assert [test for test in named if not (ROOT / test).is_file()] == []


def test_no_block_is_of_a_kind_that_is_not_looked_at() -> None:
    fences = {page: len(re.findall(r"^\s*```", page.read_text(), re.MULTILINE)) for page in pages()}

    assert {page.name: num for page, num in fences.items() if num != 2 * len(blocks(page))} == {}
    assert {block.language for page in pages() for block in blocks(page)} <= {"sh", "python", "py", "toml"}


def test_only_commands_that_harm_nothing_are_run_here() -> None:
    lines = [(str(block), line) for block in run_here() for line in block.commands]
    strange = [each for each in lines if each[1].split()[0] not in ("esper", *PLAIN)]

    assert strange == []


@pytest.mark.parametrize(("page", "group"), sorted({(block.page, group_of(block)) for block in run_here()}))
async def test_every_command_of_a_page_does_what_it_says(page: str, group: str, demo: ScriptedRun) -> None:
    commands = [
        (str(block), command)
        for block in run_here()
        if (block.page, group_of(block)) == (page, group)
        for command in block.commands
        if not (block.page in MEASURED[0] and command.startswith(MEASURED[1]))
    ]

    ids, done = Ids(), {}
    for place, command in commands:
        done[place, command] = await asyncio.to_thread(typed, command, ids)

    assert {each: said for each, (status, said) in done.items() if status != 0} == {}


def typed(command: str, ids: Ids) -> tuple[int, str]:
    """Exit status and output of one line; ours in this process, which spares an interpreter each time."""
    program, *words = ids.put(shlex.split(command))
    if program == "esper" and words[0] not in OF_A_SHELL:
        result = CliRunner().invoke(app, words)
        ids.look(command, result.output)
        return result.exit_code, result.output
    if program == "make":  # the gate runs what this only shows
        command = shlex.join([program, "--dry-run", "--directory", str(ROOT), *words])
    script = f"{command}\nexit $?"  # else the shell is gone before whoever asks which one it is
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=150)
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


def test_every_target_of_make_named_on_a_page_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page.name, target) for page in pages() for target in re.findall(r"`make ([a-z-]+)", page.read_text())}

    assert len(named) > 5
    assert sorted(each for each in named if each[1] not in targets) == []


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
    from tests.cli_kit import every_command

    assert manual.PAGES.keys() - every_command().keys() == set()
