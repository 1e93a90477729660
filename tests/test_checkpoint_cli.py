"""`esper checkpoints` shows what is there and says why one does not verify."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.checkpoints import app
from esper.errors import SettingError
from tests.altered import altered
from tests.checkpoint_kit import RUN, keyring, put, signer, store_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints; of the newer one a byte of the tensors has changed."""
    keyring().save(tmp_path / "keyring.json")
    store = store_at(tmp_path / "kept" / RUN / "rank-0")
    put(store, 100)
    tensors = put(store, 200).path / "tensors.safetensors"
    tensors.write_bytes(altered(tensors.read_bytes()))
    return tmp_path


def said(folder: Path, *words: str) -> tuple[int, list[str]]:
    command = [words[0], str(folder / "kept"), "--keyring", str(folder / "keyring.json"), *words[1:]]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.output.splitlines()


def test_list_shows_one_line_each_newest_first(folder: Path) -> None:
    status, lines = said(folder, "list")

    assert status == 0
    assert [line.split()[:3] for line in lines] == [["full", "step", "200"], ["full", "step", "100"]]
    assert all(f"{RUN} rank 0 of 1  1 tensors" in line for line in lines)


def test_those_of_a_run_that_has_ended_are_read_with_the_key_beside_its_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ESPER_KEYRING", raising=False)
    kept = folder / "runs" / RUN / "log"
    kept.mkdir(parents=True)
    (folder / "keyring.json").rename(kept / "keyring.json")

    result = CliRunner().invoke(app, ["list", "kept"])

    assert (result.exit_code, len(result.output.splitlines())) == (0, 2)


def test_verify_says_why_one_does_not(folder: Path) -> None:
    status, lines = said(folder, "verify", "--json")

    rows = [json.loads(line) for line in lines]
    assert status == 1
    assert [(row["step"], row["verifies"], row["why"]) for row in rows] == [
        (200, False, "tensor '/w' is not the one that its manifest names"),
        (100, True, ""),
    ]


def test_one_that_a_rollback_undid_is_named_so(tmp_path: Path) -> None:
    keyring().save(tmp_path / "keyring.json")
    store = store_at(tmp_path / "kept" / RUN / "rank-0")
    put(store, 100)
    put(store, 200)
    store.undo(100, time.time_ns(), signer())

    status, lines = said(tmp_path, "verify")

    assert status == 0
    assert [line.endswith("undone by a rollback") for line in lines] == [True, False]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_of_a_folder_without_any_none_is_listed(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(app, ["list", str(tmp_path), *options])

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"no checkpoints in {tmp_path}\n"


@pytest.mark.parametrize(("command", "folder"), [("verify", "."), ("list", "misspelt"), ("verify", "misspelt")])
def test_nothing_to_verify_is_refused_and_so_is_no_folder(tmp_path: Path, command: str, folder: str) -> None:
    result = CliRunner().invoke(app, [command, str(tmp_path / folder)])

    assert isinstance(result.exception, SettingError)
    assert "expected one with checkpoints in it" in str(result.exception)
