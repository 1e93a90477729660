"""What a command writes to a pipe or a device goes through it; no file takes its place, not even for root."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bench.output.placed import place
from esper.cli.main import app
from esper.errors import SettingError
from esper.leyline.durable import replacing
from esper.leyline.keys.keyring import MasterKeyring
from esper.runtime.history import logbook
from tests.forked_kit import ENDED_S, Forge, script
from tests.log_kit import toy


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return toy().save(tmp_path / "run.jsonl")


def test_a_log_is_written_through_a_pipe(log: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reading = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)  # nobody may write to it
    reading.start()

    said = CliRunner().invoke(app, ["log", str(log), "--out", str(pipe)])

    assert said.exit_code == 0, said.output
    assert pipe.is_fifo()
    reading.join(120.0)
    assert b"".join(heard) == b"".join(logbook.read_file(log).lines())


@pytest.mark.parametrize(
    "words", [["log", "{log}"], ["keys", "derive", "{master}", "--run", "a-1", "--role", "worker"]]
)
def test_a_device_that_takes_nothing_stays_and_is_told(words: list[str], log: Path, tmp_path: Path) -> None:
    master, full = tmp_path / "master.json", tmp_path / "full"
    MasterKeyring.new(time.time_ns()).save(master)
    full.symlink_to("/dev/full")

    said = CliRunner().invoke(app, [*(word.format(log=log, master=master) for word in words), "--out", str(full)])

    assert (said.exit_code, full.is_char_device()) == (2, True)
    assert "No space left on device" in str(said.output)


@pytest.mark.parametrize("takes", ["log", "place"])
def test_what_goes_to_dev_stdout_goes_into_the_pipe_that_it_is(takes: str, log: Path, forge: Forge) -> None:
    programs = {
        "log": f"from esper.cli.main import app; app(['log', {str(log)!r}, '--out', '/dev/stdout'])",
        "place": "from pathlib import Path\nfrom esper.bench.output.placed import place\n"
        "place('a report', Path('/dev/stdout'))",
    }

    with forge.talking(script(programs[takes])) as (process, output, errors):
        said = output.read()

        assert (process.wait(ENDED_S), errors.read()) == (0, "")
    wanted = {"log": b"".join(logbook.read_file(log).lines()), "place": b"a report"}
    assert said.encode().startswith(wanted[takes])


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_one_and_what_it_leads_to_is_new(is_there: bool, log: Path, tmp_path: Path) -> None:
    link, kept = tmp_path / "link", tmp_path / "kept" / "log.jsonl"
    kept.parent.mkdir()
    if is_there:
        kept.write_text("before")
    link.symlink_to(kept)

    said = CliRunner().invoke(app, ["log", str(log), "--out", str(link)])

    assert said.exit_code == 0, said.output
    assert link.is_symlink()
    assert kept.read_bytes() == b"".join(logbook.read_file(log).lines())
    assert os.listdir(kept.parent) == ["log.jsonl"]


@pytest.mark.parametrize("has_name", [True, False])
def test_an_open_file_is_named_by_its_number(has_name: bool, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open(path, "w+b") as out:
        if not has_name:
            path.unlink()
        place("a report", Path(f"/dev/fd/{out.fileno()}"))

        assert (path.read_bytes() if has_name else out.read()) == b"a report"
    assert os.listdir(tmp_path) == ["out"] * has_name


def test_a_folder_is_no_place_for_a_report(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Is a directory"):
        place("text", tmp_path)


def test_a_file_is_on_disk_before_it_has_its_name_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = list[tuple[str, list[str]]](), os.fsync

    def noting(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, [path.name for path in tmp_path.glob("new")]))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with replacing(tmp_path / "new") as file:
        file.write(b"whole")

    assert synced == [("file", []), ("folder", ["new"])]
