"""`esper bench`: list, run, compare and report, as a person calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from esper.bench.figures import Figure
from esper.bench.history.store import Store
from esper.bench.machine import this_machine
from esper.bench.output import document
from esper.cli.bench.app import EXAMPLES
from esper.cli.main import app
from tests.figure_kit import beside, document as made, timed

ROWS = """
from esper.bench.figures import Figure
from esper.bench.row import Measurement
from esper.errors import EsperError

def logging(effort):
    import structlog
    structlog.get_logger().info("checkpoint.made")
    structlog.get_logger().warning("seed.culled")
    yield from ()

def failing(effort):
    raise EsperError("the disk is gone")
    yield

def stopped(effort):
    raise KeyboardInterrupt
    yield

def sizes(effort):
    yield Figure("{name}", "ours", "count", {value}, "bytes", 1, target=100.0, gate=True)
    yield Figure("{name}", "theirs", "count", None, "bytes", label="not measured: not installed")

ROWS = [Measurement("{name}", "own", {first}), Measurement("{name}-too", "own", {too})]
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.py")


def written(path: Path, value: float = 80.0, too: str = "sizes", first: str = "sizes") -> Path:
    path.write_text(ROWS.format(name="own-size", value=value, too=too, first=first))
    return path


def esper(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(rows: Path, *arguments: object) -> Result:
    return esper("run", "own-size", "--from", rows, "--store", rows.parent / "store", *arguments)


def test_rows_of_a_file_are_listed_beside_ours(rows: Path) -> None:
    store = ("--store", rows.parent / "store")
    lines = [json.loads(line) for line in esper("list", "--from", rows, "--json", *store).stdout.splitlines()]

    assert {"family": "own", "row": "own-size"} in lines
    assert {line["family"] for line in lines} > {"own"}
    assert "own-size" in esper("list", "own", "--from", rows, *store).stdout


def test_a_list_says_how_long_a_row_took_and_would_take(rows: Path) -> None:
    run(rows)

    said = json.loads(esper("list", "own-size", "--from", rows, "--json", "--store", rows.parent / "store").stdout)

    assert said["full_s"] == pytest.approx(12 * said["quick_s"], abs=1.0)


def test_a_run_prints_one_json_object_a_line_and_nothing_else(rows: Path) -> None:
    result = run(rows, "--json")

    [ours, theirs] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (ours["bench"], ours["row"], ours["value"], ours["met"]) == ("own", "own-size", 80.0, True)
    assert (theirs["value"], theirs["label"]) == (None, "not measured: not installed")
    assert ours["machine"] == theirs["machine"] == this_machine().key and "commit" in ours
    assert result.exit_code == 0


def test_a_run_prints_a_table_and_writes_its_report(rows: Path, tmp_path: Path) -> None:
    result = run(rows, "--out", tmp_path / "out")

    assert "own / own-size" in result.stdout and "80 bytes" in result.stdout
    assert "measured own-size" in result.stderr
    assert [figure.value for figure in document.read(tmp_path / "out" / "report.json").results.figures] == [80.0, None]
    assert "own-size" in (tmp_path / "out" / "report.html").read_text()


def test_a_run_is_remembered_in_the_store_that_is_named(rows: Path) -> None:
    run(rows)
    run(rows)

    [file] = (rows.parent / "store").iterdir()
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(("effort", "status"), [("--quick", 0), ("--full", 0), ("--gate", 1)])
def test_a_missed_target_fails_the_run_only_where_it_gates(effort: str, status: int, tmp_path: Path) -> None:
    assert run(written(tmp_path / "rows.py", value=101.0), effort).exit_code == status


def test_a_row_that_fails_is_told_and_fails_the_run(tmp_path: Path) -> None:
    result = run(written(tmp_path / "rows.py", too="failing"), "own-size-too")

    assert result.exit_code == 1
    assert "failed: " in result.stdout and "the disk is gone" in result.stdout
    assert "80 bytes" in result.stdout


def test_of_what_rows_log_a_person_is_told_warnings(tmp_path: Path) -> None:
    result = run(written(tmp_path / "rows.py", too="logging"), "own-size-too")

    assert "seed.culled" in result.stderr and "checkpoint.made" not in result.stderr
    assert re.search(r"measured own-size-too in \d+ s", result.stderr)


def test_interrupted_it_writes_what_there_is_and_remembers_nothing(tmp_path: Path) -> None:
    result = run(written(tmp_path / "rows.py", too="stopped"), "own-size-too", "--out", tmp_path / "out")

    assert result.exit_code == 130
    assert "80 bytes" in result.stdout
    assert len(document.read(tmp_path / "out" / "report.json").results.figures) == 2
    assert not (tmp_path / "store").exists()


def test_interrupted_it_tells_which_rows_had_failed(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.py", first="failing", too="stopped")

    result = run(rows, "own-size-too", "--out", tmp_path / "out")

    assert result.exit_code == 130
    assert "failed: " in result.stdout and "the disk is gone" in result.stdout
    [failure] = document.read(tmp_path / "out" / "report.json").results.failures
    assert "the disk is gone" in str(failure)


def test_a_row_that_is_forgotten_has_no_earlier_runs(rows: Path) -> None:
    run(rows)
    store = rows.parent / "store"

    result = esper("forget", "own-size", "--store", store)
    again = esper("forget", "own-size", "--store", store)

    [session] = Store(store).sessions(this_machine().key)
    assert (result.exit_code, session.entries) == (0, ())
    assert again.exit_code == 2 and "the row is 'own-size'; expected one of the earlier runs" in again.stderr


def test_a_folder_that_can_not_be_made_is_told_of_before_anything_is_measured(rows: Path) -> None:
    result = run(rows, "--out", "/proc/none")

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "--out is '/proc/none'; expected a folder that can be written to" in result.stderr


def test_a_sample_is_one_row_of_each_family(rows: Path) -> None:
    result = run(rows, "own", "--sample", "--json")

    assert {json.loads(line)["row"] for line in result.stdout.splitlines()} == {"own-size"}


def test_two_results_are_compared_by_their_ratios_to_the_reference(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "one.json", timed(), beside(1.2)), saved(tmp_path / "other.json", beside(1.8))

    [line] = [json.loads(line) for line in esper("compare", one, other, "--json").stdout.splitlines()]
    table = " ".join(esper("compare", one, other).stdout.split())

    assert (line["ratio"], line["vs"]["ratio"]) == (pytest.approx(1.5), pytest.approx(1.5))
    assert "numpy p50 3.6 ms 5.4 ms 1.500" in table
    assert esper("compare", one, other).exit_code == 0


def test_a_report_is_made_of_saved_results(tmp_path: Path) -> None:
    results = saved(tmp_path / "report.json", timed(), beside(1.2))

    page = esper("report", "--from-results", results, "--store", tmp_path / "store")
    text = esper("report", "--from-results", results, "--markdown", "--out", tmp_path / "docs" / "page.md")

    assert page.stdout.strip() == str(tmp_path / "report.html")
    assert "numpy" in (tmp_path / "report.html").read_text()
    assert (text.exit_code, (tmp_path / "docs" / "page.md").read_text().startswith("# Benchmarks")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["run", "hmac-verfy"],
            "the benchmark is 'hmac-verfy'; expected one of `esper bench list` (near: 'hmac-verify'",
        ),
        (["run", "own-size", "--from", "/nowhere/rows.py"], "'/nowhere/rows.py'; expected a file that exists"),
        (["run", "hmac-verify", "--limit", "inf"], "--limit is inf; expected minutes above 0, of a week at most"),
        (["run", "hmac-verify", "--anew"], "--anew is 'given'; expected --full with --out, and one revision"),
        (
            ["run", "hmac-verify", "--limit", "1", "--baseline", ".", "--current", "."],
            "--limit is '1'; expected one rev",
        ),
        (["run", "--quick", "--full"], "the effort is 'quick and full'; expected one of --quick, --gate and --full"),
        (["run", "hmac-verify", "--baseline", "HEAD"], "--current is not set; expected a revision as well"),
        (["compare", "/nowhere/a.json", "/nowhere/b.json"], "the file of results is '/nowhere/a.json'"),
        (["report", "--from-results", "/nowhere/a.json"], "the file of results is '/nowhere/a.json'"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], expected: str) -> None:
    result = esper(*arguments)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert expected in result.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_of_each_command_shows_an_example(name: str) -> None:
    assert f"Example: esper bench {name} " in " ".join(esper(name, "--help").stdout.split())


def test_a_page_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    result = esper("report", "--from-results", saved(tmp_path / "a.json", timed()), "--out", "/proc/none/page.html")

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "expected a place that can be written to" in result.stderr


def saved(path: Path, *figures: Figure) -> Path:
    document.write(made(*figures), path)
    return path
