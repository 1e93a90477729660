"""Two revisions of this checkout in one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE

import pytest

from esper.bench.agreement import DisagreementError
from esper.bench.effort import Effort
from esper.bench.machine import HERE, git, revision
from esper.bench.registry import registered
from esper.bench.revisions.interleaved import Revisions, compare
from esper.bench.timing.blame import ArmFailedError
from esper.bench.underway import Underway
from esper.errors import SettingError
from tests.bench_kit import told
from tests.system.processes import PATIENCE_S

FILE = Path(__file__).with_name("rows_of_revisions.py")
EFFORT = Effort("gate", 40, 100, 0.3, 4.0)

pytestmark = pytest.mark.skipif(not revision(HERE)[0], reason="the tests are not run from a checkout")


def test_what_got_slower_is_an_alarm_and_what_came_to_something_else_or_died_fails() -> None:
    rows = [registered([FILE])[name] for name in ("counting", "counted", "changed", "dying")]

    results = compare(rows, Revisions("HEAD", ".", [FILE]), Underway(EFFORT))

    ratio = told(results.figures, "planted as it is", "p50").vs
    assert ratio is not None and ratio.verdict == "slower"
    [alarm] = results.alarms
    assert (alarm.row, alarm.arm) == ("counting", "planted") and alarm.p_value < 0.001
    assert told(results.figures, "gone as it is", "p50").label.startswith("not measured: not installed (at ")
    assert told(results.figures, "all", "p50").label == "not measured: it is no comparison of arms"
    disagreement, death = results.failures
    assert isinstance(disagreement, DisagreementError) and "'new', expected 'old'" in str(disagreement)
    assert isinstance(death, ArmFailedError) and death.why == "its process ended with status 7"
    assert results.status == 1
    assert not [line for line in git(HERE, "worktree", "list").splitlines() if "esper-bench-" in line]


def test_a_process_that_is_slow_by_its_luck_is_no_alarm() -> None:
    mark = Path(tempfile.gettempdir()) / f"esper-unlucky-{os.getpid()}"

    try:
        results = compare([registered([FILE])["unlucky"]], Revisions("HEAD", ".", [FILE]), Underway(EFFORT))
    finally:
        mark.unlink()

    ratio = told(results.figures, "placed as it is", "p50").vs
    assert ratio is not None and ratio.verdict == "slower"
    assert (results.alarms, results.failures) == ((), ())


def test_a_revision_that_git_does_not_know_is_named() -> None:
    with pytest.raises(SettingError, match=r"the revision is 'no-such-revision'; expected one that git knows in"):
        compare([], Revisions("no-such-revision", "."), Underway(EFFORT))


@pytest.mark.skipif(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="started where Ctrl-C is ignored")
def test_ctrl_c_ends_a_process_of_arms_without_a_word() -> None:
    command = [sys.executable, "-m", "esper.bench.child"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write('{"ask": "close", "of": []}\n')
        process.stdin.flush()
        assert process.stdout.readline() == '{"is": null}\n'

        process.send_signal(signal.SIGINT)

        assert (process.wait(PATIENCE_S), process.stderr.read()) == (130, "")
