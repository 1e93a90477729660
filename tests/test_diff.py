"""Two runs are compared by what took effect before which step and what came of it, not by ids and times."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from esper.cli.main import app
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from tests.log_kit import GERMINATE, Writer, toy


def compared(tmp_path: Path, one: Writer, other: Writer, *options: str) -> tuple[int, str]:
    paths = [run.save(tmp_path / name / "run.jsonl") for name, run in (("one", one), ("other", other))]
    result = CliRunner().invoke(app, ["diff", *map(str, paths), *options])
    return result.exit_code, result.output


def test_runs_that_decided_the_same_are_alike_whatever_their_ids_and_keys(tmp_path: Path) -> None:
    assert compared(tmp_path, toy("one-0a1b2c3d"), toy("two-0a1b2c3d")) == (0, "alike in all 4 decisions\n")


def test_the_first_step_that_differs_is_named_with_what_came_before(tmp_path: Path) -> None:
    status, said = compared(tmp_path, toy(), toy(second_step=31))

    assert status == 1
    assert said.splitlines()[0] == "alike in 1 decision, then they differ in step"
    assert said.splitlines()[1:] == [
        "  both:  step 10 (round 1): germinate s0 at head from lora (rank=4) -> applied",
        "  one:   step 30 (round 2): optimizer of host: initialize host -> applied",
        "  other: step 31 (round 2): optimizer of host: initialize host -> applied",
    ]


def test_a_command_that_differs_in_one_figure_is_shown(tmp_path: Path) -> None:
    status, said = compared(tmp_path, toy(), toy(rank=8), "--json")

    told = json.loads(said)
    assert (status, told["common"], told["differs_in"]) == (1, 0, "command")
    assert ("rank=4.0" in told["one"]["what"], "rank=8.0" in told["other"]["what"]) == (True, True)


def test_what_differs_though_the_words_are_the_same_is_shown_field_by_field(tmp_path: Path) -> None:
    one, other = toy(), Writer("toy-0a1b2c3d")
    command = pb.AdaptationCommand()
    command.CopyFrom(GERMINATE)
    command.seed_command.parameters["rank"] = 4.0000001
    entry = other.say("commands", Role.CONTROLLER, "controller", command)
    other.decide(2, entry, command.command_id, 10)  # in another round, which is no difference

    _, said = compared(tmp_path, one, other)

    assert "one:   step 10 (round 1): COMMAND_SEED " in said and "rank=4.0 " in said
    assert "other: step 10 (round 2): COMMAND_SEED " in said and "rank=4.0000001 " in said


def test_a_run_that_ends_earlier_parts_there(tmp_path: Path) -> None:
    status, said = compared(tmp_path, toy(), toy(ended=False))

    assert status == 1
    assert "alike in 2 decisions, then they differ in length" in said
    assert "other: has ended" in said


def test_runs_in_two_places_are_named_by_their_folders(tmp_path: Path) -> None:
    folders = [tmp_path / place / "runs" / "toy-0a1b2c3d" for place in ("here", "there")]
    for folder, run in zip(folders, (toy(), toy(second_step=31)), strict=True):
        run.save(folder / "log" / "run.jsonl")

    result = CliRunner().invoke(app, ["diff", *map(str, folders)])
    mixed = CliRunner().invoke(app, ["diff", "toy", str(folders[0]), "--runs-dir", str(folders[0].parent)])

    assert (result.exit_code, result.output.splitlines()[0]) == (1, "alike in 1 decision, then they differ in step")
    assert (mixed.exit_code, mixed.output) == (0, "alike in all 4 decisions\n")
