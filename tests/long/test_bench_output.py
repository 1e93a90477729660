"""What a run of the suite came to, on a terminal and as JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from esper.bench.figures import Figure, Ratio
from esper.bench.output import document, lines, table, words
from esper.bench.results import Alarm
from esper.errors import EsperError, SettingError
from tests.figure_kit import absent, beside, counted, document as made, results, timed


def shown(given: document.Document, *, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, legacy_windows=False)
    table.show(given, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_holds_the_fields_that_are_agreed_on() -> None:
    fields = json.loads(lines.as_line(beside(1.2), "arithmetic"))

    agreed = {"bench", "row", "arm", "stat", "value", "unit", "n", "label", "vs"}
    assert agreed | {"shape", "target", "aspiration", "met"} == {*fields}
    assert fields["vs"] == {"arm": "loop", "ratio": 1.2, "low": 1.14, "high": 1.26, "floor": 0.02, "verdict": "slower"}
    assert (fields["bench"], fields["n"], fields["met"]) == ("arithmetic", 10, False)


@pytest.mark.parametrize("figure", [timed(), beside(0.5, "faster"), beside(2.0, None, None), absent(), counted()])
def test_a_figure_is_read_back_as_it_was(figure: Figure) -> None:
    fields = json.loads(json.dumps(lines.as_fields(figure, "arithmetic", samples=True)))

    read = lines.as_figure(fields)

    assert replace(read, samples=tuple(read.samples)) == figure


def test_an_interval_without_an_end_is_still_json() -> None:
    figure = replace(timed(), vs=Ratio("loop", 1.0, 0.0, math.inf))

    line = lines.as_line(figure, "arithmetic")

    assert "Infinity" not in line
    assert lines.as_figure(json.loads(line)).vs == figure.vs


def test_a_figure_belongs_to_the_row_that_its_name_goes_on_from() -> None:
    families = {"seal": "wire", "seal-packet": "packets"}

    found = [lines.family_of(row, families) for row in ("seal", "seal-packet", "seal-packet 32", "fold")]

    assert found == ["wire", "packets", "packets", "other"]


def test_a_file_of_results_is_read_back_as_it_was(tmp_path: Path) -> None:
    alarm = Alarm("sum", "numpy", 1.3, 0.001)
    ran = results(timed(), beside(1.2), absent(), failures=(EsperError("sum: loop broke"),), alarms=(alarm,))
    given = document.Document(ran, {"sum": "arithmetic", "memory": "space"})

    document.write(given, tmp_path / "made" / "report.json")
    read = document.read(tmp_path / "made" / "report.json")

    assert (read.results.machine, read.results.effort, read.results.alarms) == (ran.machine, ran.effort, (alarm,))
    assert [str(failure) for failure in read.results.failures] == ["sum: loop broke"]
    assert [lines.as_fields(each, "", samples=True) for each in read.results.figures] == [
        lines.as_fields(each, "", samples=True) for each in ran.figures
    ]
    assert list(read.by_family) == ["arithmetic", "space"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": {}}', "\x00", '{"machine": 3}'])
def test_what_is_no_file_of_results_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)

    with pytest.raises(SettingError, match="esper bench run --out DIR"):
        document.read(path)


def test_a_figure_with_a_word_for_a_number_is_refused_by_its_field() -> None:
    with pytest.raises(SettingError, match="value of a figure is 'fast'"):
        lines.as_figure({**lines.as_fields(timed(), ""), "value": "fast"})


def test_the_table_fits_eighty_columns_and_is_plain_where_there_is_no_terminal() -> None:
    far = replace(beside(123.4), arm="an arm whose name goes on for longer than any column of it is wide")

    plain = shown(made(timed(), far, absent(), counted()))

    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in plain
    assert "\x1b" in shown(made(), terminal=True)


def test_the_table_says_ratio_verdict_target_and_why_nothing_was_measured() -> None:
    said = " ".join(shown(made()).split())

    assert "1.200 [1.140, 1.260]" in said and "slower" in said
    assert "<= 2 missed" in said and ">= 100 met" in said
    assert "not measured: no GPU" in said
    assert "12,345 bytes (derived)" in said
    assert "4 figures, 1 not measured, 0 rows failed, 1 of 2 targets met, in 12 s (quick)" in said


def test_one_that_failed_is_one_row() -> None:
    assert "1 figure, 0 not measured, 1 row failed" in table.summary(results(counted(), failures=(EsperError("lost"),)))


def test_a_name_with_brackets_is_no_markup() -> None:
    assert "[bold]arm" in shown(made(replace(timed(), arm="[bold]arm")))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.001234567, "0.001235"), (2.0, "2"), (1234.5, "1234"), (123_456.7, "123,457"), (2e15, "2.000e+15")],
)
def test_a_number_has_four_digits_that_tell(value: float, text: str) -> None:
    assert words.number(value) == text
