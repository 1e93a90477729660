"""A log says which code has trained each process of its run, and whoever reads it whether that is other code."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

from typer.testing import CliRunner

from esper.cli import replay
from esper.cli.main import app
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime.history import logbook
from esper.runtime.history.retrace import Life, lives
from esper.version import running
from tests.log_kit import began, toy

OTHER = "Esper 0.0.9 (0123456789ab)"
THIS = f"this is {running()}: a replay may come to other parameters"


def said(*arguments: str | Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.output.splitlines()


def test_a_log_of_this_very_code_is_worth_no_line(tmp_path: Path) -> None:
    path = toy().save(tmp_path / "run.jsonl")

    assert [len(said(*words)[1]) for words in (("verify", path), ("replay", path, "--dry-run"))] == [1, 1]
    assert json.loads(said("verify", path, "--json")[1][-1])["release"] == ""


def test_other_code_that_has_trained_for_a_while_is_named_in_one_line_and_nothing_refused(tmp_path: Path) -> None:
    run = toy()
    run.record(0, 8, began=began(esper_version=OTHER, resumed=True))
    run.record(1, 8, began=began(esper_version=OTHER, resumed=True))
    path = run.save(tmp_path / "run.jsonl")

    status, [line, summary] = said("verify", path)

    assert (status, line) == (0, f"trained by {OTHER}; {THIS}")
    assert summary.endswith("0 findings, 0 notes")
    assert json.loads(said("verify", path, "--json")[1][-1])["release"] == line


def test_a_log_from_before_it_was_said_is_read_and_told_as_older(tmp_path: Path) -> None:
    with ZipFile(Path(__file__).with_name("earlier_run.zip")) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "master.json").chmod(0o600)
    MasterKeyring.load(tmp_path / "master.json").derive("earlier-00c0ffee", [*Role]).save(tmp_path / "keyring.json")
    named = tmp_path / "run.jsonl", "--keyring", tmp_path / "keyring.json"

    verified, replayable = said("verify", *named), said("replay", *named, "--dry-run")

    line = f"trained by one of before 2026-11-23, which does not say; {THIS}"
    assert (verified[0], verified[1][0]) == (0, line)
    assert (replayable[0], replayable[1][0]) == (0, f"warning: {line}")


def test_another_torch_of_a_process_that_was_gone_on_with_is_told_once_by_a_replay() -> None:
    then = [began(torch_version=each, num_threads=num) for each, num in (("2.12.0", 4), ("2.13.0", 2))]
    lived = [Life(pb.RunRecord(version=1, began=each), each) for each in then]
    plan = pb.ReplayPlan(worker="worker-0", last_step=9)
    report = pb.ReplayReport(began=then[-1], report=pb.WorkerReport(steps=9))
    result = replay.Result("toy", "", 9)

    for _ in range(2):
        replay._note(result, plan, report, lived)

    parts = [each for each in result.warnings if each.startswith(("torch_version", "num_threads"))]
    assert parts == ["torch_version is 2.13.0, then 2.12.0", "num_threads is 2, then 4"]


def test_what_the_trainers_of_a_replay_say_counts_and_not_what_the_command_is() -> None:
    then = [began(esper_version=each) for each in (OTHER, "")]
    lived = [Life(pb.RunRecord(version=1, began=each), each) for each in then]
    report = pb.ReplayReport(began=then[0], report=pb.WorkerReport(steps=9))
    result = replay.Result("toy", "", 9)

    replay._note(result, pb.ReplayPlan(worker="worker-0", last_step=9), report, lived)

    found = [each for each in result.warnings if each.startswith("esper_version")]
    assert found == [f"esper_version is {OTHER}, then one of before 2026-11-23, which does not say"]


def test_of_a_process_whose_work_was_lost_to_one_that_began_anew_nothing_is_told(tmp_path: Path) -> None:
    run = toy(ended=False)
    for number in range(2):
        run.record(number, 6, began=began(esper_version=OTHER))
        run.record(number, 8, began=began())
        run.record(number, 9, began=began(resumed=True))

    path = run.save(tmp_path / "run.jsonl")

    assert len(said("verify", path)[1]) == 1
    reads = logbook.opened(run.book, run.keyring)
    assert {rank: [each.record.incarnation for each in lived] for rank, lived in lives(reads).items()} == {
        rank: [8, 9] for rank in range(2)
    }


def test_a_replica_that_began_anew_has_lost_no_work_of_another(tmp_path: Path) -> None:
    run = toy(ended=False)
    for worker, incarnation, release in (("worker-0", 8, OTHER), ("worker-1", 8, ""), ("worker-1", 9, running())):
        record = pb.RunRecord(version=1, worker=worker, incarnation=incarnation, world_size=1)
        record.began.CopyFrom(began(esper_version=release))
        run.say("receipts", Role.WORKER, worker, record)

    assert said("verify", run.save(tmp_path / "run.jsonl"))[1][0] == f"trained by {OTHER}; {THIS}"
