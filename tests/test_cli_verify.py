"""`esper verify` says what it checked, and its status whether something was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from esper.leyline.archive import decode_line, encode_line
from esper.leyline.keys.keyring import RoleKeyring
from esper.runtime.history.audit import audit
from tests.log_kit import Writer, toy


def verified(*arguments: str | Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    return result.exit_code, result.output.splitlines()


def test_a_run_without_a_command_misses_no_public_key(tmp_path: Path) -> None:
    run = Writer()
    run.save(tmp_path / "run.jsonl")

    _, lines = verified(tmp_path / "run.jsonl")

    assert "every seal and no signature (there is no command) checked" in lines[-1]


def test_the_command_line_says_what_was_checked_and_ends_with_one_where_something_is_found(tmp_path: Path) -> None:
    run = toy()
    path = run.save(tmp_path / "run.jsonl")
    assert verified(path) == (
        0,
        [f"run {run.book.run_id}: 16 entries, every seal and 1 signatures checked: 0 findings, 0 notes"],
    )

    (tmp_path / "keyring.json").unlink()
    status, lines = verified(path, "--json")
    assert (status, json.loads(lines[-1])["seals_checked"]) == (0, False)

    line = decode_line(path.read_bytes().splitlines(keepends=True)[1], 2)
    path.write_bytes(path.read_bytes().replace(encode_line(line), b""))
    status, lines = verified(path)
    assert status == 1
    assert lines[-1].endswith("2 findings, 0 notes")


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    status, lines = verified(tmp_path / "none.jsonl", "--runs-dir", tmp_path)
    assert status == 2
    assert "a live run" in lines[0]


@pytest.mark.parametrize("text", ["hello\nthis is\nno log\n", ""])
def test_a_file_that_is_no_log_is_bad_input_said_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.txt").write_text(text)

    status, lines = verified(tmp_path / "other.txt")

    assert (status, len(lines)) == (2, 1)
    assert "expected an exported log" in lines[0]


def test_a_name_too_long_for_any_file_is_bad_input_said_once(tmp_path: Path) -> None:
    status, lines = verified(Path("x" * 300))

    assert (status, len(lines)) == (2, 1)
    assert "no live run is called" in lines[0]


def test_public_keys_alone_check_the_signatures(tmp_path: Path) -> None:
    run = toy()
    path = run.save(tmp_path / "run.jsonl")
    exported = CliRunner().invoke(
        app, ["log", str(path), "--out", str(tmp_path / "x" / "x.jsonl"), "--public", str(tmp_path / "public.json")]
    )
    assert exported.exit_code == 0, exported.output

    status, lines = verified(tmp_path / "x" / "x.jsonl", "--keyring", tmp_path / "public.json")
    assert (status, lines[-1]) == (
        0,
        f"run {run.book.run_id}: 16 entries, no seal (there is no secret keyring), structure alone and 1 signatures "
        "checked: 0 findings, 0 notes",
    )
    assert "key" not in json.loads((tmp_path / "public.json").read_text())["keys"]

    stranger = toy(run.book.run_id).book.streams["commands"][0]
    run.book.streams["commands"][0] = stranger
    findings = audit(run.book, RoleKeyring.load(tmp_path / "public.json")).findings
    assert {each.kind for each in findings if each.entry_id == stranger.entry_id} == {"signature"}
