"""What the runner refuses to time, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.bench.agreement import DisagreementError, Tolerance
from esper.bench.arm import Arm, Ready
from esper.bench.figures import Figure
from esper.bench.row import Comparison, Goal, Measurement
from esper.bench.runner import run
from esper.bench.timing.blame import ArmFailedError
from esper.errors import SettingError
from tests.bench_kit import BRIEF, arm, nothing, row, told


def test_an_arm_that_computes_something_else_is_refused_before_anything_is_timed() -> None:
    calls = list[str]()
    wrong = row(arm("ours", lambda: calls.append("ours"), [1.0, 2.0]), arm("other", nothing, [1.0, 2.1]))

    results = run([wrong], BRIEF)

    [failure] = results.failures
    assert isinstance(failure, DisagreementError) and (failure.one, failure.other) == ("ours", "other")
    assert "answer[1] is 2.1, expected 2.0" in str(failure)
    assert (calls, results.figures, results.status) == (["ours"], (), 1)


def test_answers_within_the_tolerance_of_a_row_agree() -> None:
    close = replace(row(arm("ours", nothing, [2.0]), arm("other", nothing, [2.1])), tolerance=Tolerance(0.1))

    assert run([close], BRIEF).status == 0


def test_an_arm_that_crashes_fails_the_run_by_its_name_and_the_next_row_is_measured() -> None:
    def crash() -> None:
        raise ZeroDivisionError("by hand")

    results = run([row(arm("ours", nothing), arm("broken", crash)), row(arm("sound", nothing))], BRIEF)

    [failure] = results.failures
    assert isinstance(failure, ArmFailedError) and failure.arm == "broken"
    assert isinstance(failure.__cause__, ZeroDivisionError)
    assert {figure.arm for figure in results.figures} == {"all", "sound", "sound again"}
    assert results.status == 1


def test_an_arm_that_crashes_only_once_it_is_timed_fails_the_run_too() -> None:
    calls = list[int]()

    def tire() -> None:
        calls.append(0)
        if len(calls) > 20:
            raise MemoryError

    [failure] = run([row(arm("ours", nothing), arm("tired", tire))], BRIEF).failures

    assert isinstance(failure, ArmFailedError) and failure.arm == "tired"


def test_what_was_set_up_is_closed_when_a_later_arm_fails() -> None:
    closed = list[str]()

    def refuse() -> Ready:
        raise OSError("no such device")

    first = Arm("ours", lambda: Ready(nothing, close=lambda: closed.append("ours")))

    [failure] = run([row(first, Arm("other", refuse))], BRIEF).failures

    assert "other failed: OSError: no such device" in str(failure)
    assert closed == ["ours"]


def test_what_can_not_be_closed_does_not_hide_why_its_row_failed() -> None:
    def crash() -> None:
        raise ZeroDivisionError("by hand")

    def stuck() -> None:
        raise OSError("busy")

    broken, sound = (Arm("ours", lambda call=call: Ready(call, close=stuck)) for call in (crash, nothing))  # type: ignore[misc]

    first, second = run([row(broken), row(sound)], BRIEF).failures

    assert "ZeroDivisionError: by hand" in str(first) and first.__notes__ == ["row: ours failed: OSError: busy"]
    assert str(second) == "row: ours failed: OSError: busy"


def test_a_missing_arm_says_why_and_the_others_are_measured() -> None:
    results = run([row(arm("ours", nothing), arm("peft", nothing, missing="peft is not installed"))], BRIEF)

    absent = told(results.figures, "peft", "p50")
    assert (absent.value, absent.label) == (None, "not measured: peft is not installed")
    assert told(results.figures, "ours", "p50").num == 30
    assert results.status == 0


def test_without_its_reference_no_arm_is_measured_and_each_says_so() -> None:
    absent = row(arm("gromo", nothing, missing="gromo is not installed"), arm("ours", nothing))

    figures = run([absent], BRIEF).figures

    assert [figure.value for figure in figures] == [None, None]
    assert figures[1].label == ("not measured: gromo, which it is compared with, is missing (gromo is not installed)")


def test_an_arm_that_can_not_say_whether_it_is_missing_fails_its_row_alone() -> None:
    def look() -> str:
        raise ModuleNotFoundError("half a package")

    results = run([row(Arm("torn", lambda: Ready(nothing), look)), row(arm("sound", nothing))], BRIEF)

    [failure] = results.failures
    assert isinstance(failure, ArmFailedError) and failure.arm == "torn"
    assert told(results.figures, "sound", "p50").num == 30


def test_a_measurement_that_fails_fails_the_run() -> None:
    def measure(_: object) -> list[Figure]:
        raise RuntimeError("the soak ended early")

    [failure] = run([Measurement("soak", "family", measure)], BRIEF).failures

    assert str(failure) == "soak: the measurement failed: RuntimeError: the soak ended early"


@pytest.mark.parametrize(
    "wrong",
    [
        replace(row(arm("ours", nothing)), limit="theirs"),
        replace(row(arm("ours", nothing)), goals=(Goal("theirs", "p50", 1.0),)),
        replace(row(arm("ours", nothing)), goals=(Goal("ours", "p42", 1.0),)),
        row(arm("ours", nothing), arm("ours", nothing)),
        replace(row(arm("ours", nothing)), calls=0),
    ],
)
def test_a_row_that_names_what_there_is_not_is_refused(wrong: Comparison) -> None:
    [failure] = run([wrong], BRIEF).failures

    assert isinstance(failure, SettingError)
