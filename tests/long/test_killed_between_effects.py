"""Whatever a process does to files, killed between any two steps of it: what is left is whole, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.cli import keys
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.crew.logfiles import rotate
from esper.runtime.exporters.lines import JsonLines
from esper.runtime.exporters.loop import Entry
from tests.effect_kit import Work, every_crash

RUN = "digits-0a1b2c3d"
DAY_S = 86_400


def in_folders(parent: Path, prepare: Callable[[Path], Callable[[], None]]) -> Callable[[int], Work]:
    """A folder for each number, in which all is made ready; then what is to be killed begins."""

    def prepared(number: int) -> Work:
        folder = parent / str(number)
        folder.mkdir()
        go_on = prepare(folder)

        def work(begin: Callable[[], None]) -> None:
            begin()
            go_on()

        return work

    return prepared


def put_aside(log: Path) -> None:
    assert rotate(log, 1, kept=9)


def test_no_line_of_a_log_is_lost_while_it_is_put_aside(tmp_path: Path) -> None:
    lines = [b"%d\n" % number for number in range(5)]

    def full(folder: Path) -> Callable[[], None]:
        log = folder / "x.log"
        for line in lines[:3]:
            log.write_bytes(line)
            put_aside(log)
        log.write_bytes(lines[3])
        return lambda: put_aside(log)

    for number in every_crash(in_folders(tmp_path, full)):
        log = tmp_path / str(number) / "x.log"
        with log.open("ab") as file:
            file.write(lines[4])
        put_aside(log)

        held = b"".join(path.read_bytes() for path in log.parent.glob("x.log.?"))
        assert sorted(set(held.splitlines(keepends=True))) == lines, f"killed before effect {number}"
    assert number > 4


def test_an_exporter_goes_on_behind_its_last_line_while_files_are_set_aside(tmp_path: Path) -> None:
    def opened(folder: Path) -> JsonLines:
        return JsonLines(folder / "run.jsonl", lambda each: {"sequence": each.sequence}, 1, 3)

    def write(folder: Path, number: int) -> None:
        aggregate = pb.AggregatedTelemetry(version=1, sequence=number)
        asyncio.run(opened(folder).write([Entry(f"{number}-0", aggregate)]))

    def begun(folder: Path) -> Callable[[], None]:
        for number in range(1, 6):
            write(folder, number)
        return lambda: write(folder, 6)

    for number in every_crash(in_folders(tmp_path, begun)):
        folder = tmp_path / str(number)
        for each in range(opened(folder).sequence + 1, 9):
            write(folder, each)

        files = [folder / f"run.jsonl.{which}" for which in (3, 2, 1)]
        held = [json.loads(line)["sequence"] for path in files for line in path.read_text().splitlines()]
        assert held == list(range(held[0], 9)) and len(held) >= 3, f"killed before effect {number}"
    assert number > 4


def test_keys_that_were_rotated_in_part_are_whole_after_the_next_rotation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rotated(folder: Path) -> None:
        keys.rotate(folder / "master.json", lead_s=60, overlap_s=DAY_S, renew=folder / "roles")

    def made(folder: Path) -> Callable[[], None]:
        (folder / "roles").mkdir()
        keys.new(folder / "master.json")
        master = MasterKeyring.load(folder / "master.json")
        for role in (Role.CONTROLLER, Role.WORKER):
            master.derive(RUN, [role]).save(folder / "roles" / f"{role}.json")
        return lambda: rotated(folder)

    for number in every_crash(in_folders(tmp_path, made)):
        folder = tmp_path / str(number)
        known = {each.key_id for each in MasterKeyring.load(folder / "master.json").validities}
        held = [RoleKeyring.load(path) for path in sorted((folder / "roles").glob("*.json"))]
        assert all({each.key_id for each in one.validities} <= known for one in held)

        rotated(folder)
        known = {each.key_id for each in MasterKeyring.load(folder / "master.json").validities}
        held = [RoleKeyring.load(path) for path in sorted((folder / "roles").glob("*.json"))]
        assert [{each.key_id for each in one.validities} for one in held] == [known] * 2
    assert number > 6
