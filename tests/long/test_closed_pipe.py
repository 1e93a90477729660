"""Output that nobody reads to its end ends a command quietly, as `esper tail | head` does; a full disk, in one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.forked_kit import Forge, script
from tests.log_kit import toy
from tests.unread_kit import unread, without_a_reader

PROGRAM = "from esper.cli.main import app; app(prog_name='esper')"
ROWS = """
from esper.bench.figures import Figure
from esper.bench.row import Measurement
from esper.errors import EsperError

def fails(effort):
    raise EsperError("the disk is gone")
    yield

def counts(effort):
    yield Figure("found", "ours", "count", 1.0, "bytes", 1)

ROWS = [Measurement("found", "own", counts), Measurement("lost", "own", fails)]
"""
LOST = "failed: lost: the measurement failed: EsperError: the disk is gone\n"


@pytest.mark.parametrize(
    ("words", "when"),
    [(["keys", "list"], "as it is written"), (["keys", "list"], "at the end"), (["--help"], "at the end")],
)
def test_a_closed_pipe_is_no_failure_of_the_command(words: list[str], when: str, tmp_path: Path) -> None:
    """Of an interpreter of its own: the others are forked, and made to buffer or not as one would."""
    MasterKeyring.new(time.time_ns()).save(tmp_path / "master.json")
    arguments = ["-c", PROGRAM, *words, *[str(tmp_path / "master.json")] * (len(words) > 1)]
    unbuffered = "1" if when == "as it is written" else ""

    ended = unread(arguments, environment={"PYTHONUNBUFFERED": unbuffered}, timeout_s=150)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "{spoilt}"],
        ["diff", "{sound}", "{spoilt}"],
        ["checkpoints", "verify", "{torn}", "--keyring", "{keyring}"],
        ["doctor", "--redis", "unix://{nowhere}"],
        ["bench", "run", "lost", "--from", "{rows}", "--store", "{store}"],
    ],
)
def test_what_was_found_is_no_yes_where_nobody_reads_it(words: list[str], forge: Forge, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("torn", "nowhere", "keyring", "rows", "store")}
    places |= {
        "sound": toy().save(tmp_path / "1" / "run.jsonl"),
        "spoilt": toy(rank=8).save(tmp_path / "2" / "run.jsonl"),
    }
    places["spoilt"].write_bytes(places["spoilt"].read_bytes()[:-10])
    places["rows"].write_text(ROWS)
    (places["torn"] / f"step-{7:012d}-{7:016x}").mkdir(parents=True)
    MasterKeyring.new(time.time_ns()).derive("run-00c0ffee", [Role.WORKER]).save(places["keyring"])

    program = script(PROGRAM, *(word.format(**places) for word in words))
    with without_a_reader() as pipe:
        ended = forge.ended(program, stdout=pipe, environment={"PYTHONUNBUFFERED": "1"})

    assert ended.returncode == 1
    assert ended.stderr == (LOST if words[0] == "bench" else "")


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_figures_that_nobody_reads_end_a_run_as_ctrl_c_does(unbuffered: str, forge: Forge, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    places = ["--from", str(tmp_path / "rows.py"), "--store", str(tmp_path / "store")]

    program = script(PROGRAM, "bench", "run", "found", "lost", "--json", *places)
    with without_a_reader() as pipe:
        ended = forge.ended(program, stdout=pipe, environment={"PYTHONUNBUFFERED": unbuffered})

    assert ended.returncode == 130
    assert ended.stderr.startswith("interrupted before 2 rows were done: found, lost\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["keys", "list", "{master}"], ["log", "{log}"], ["verify", "{log}"], ["--help"]])
def test_output_that_a_full_disk_does_not_take_is_one_line(
    words: list[str], unbuffered: str, forge: Forge, tmp_path: Path
) -> None:
    places = {"master": tmp_path / "master.json", "log": toy().save(tmp_path / "run.jsonl")}
    MasterKeyring.new(time.time_ns()).save(places["master"])

    program = script(PROGRAM, *(word.format(**places) for word in words))
    with open("/dev/full", "w") as full:
        ended = forge.ended(program, stdout=full.fileno(), environment={"PYTHONUNBUFFERED": unbuffered})

    assert (ended.returncode, ended.stderr) == (2, "esper: output can't be written: No space left on device\n")
