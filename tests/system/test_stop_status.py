"""A trainer that is told to stop by its file says by its exit status whether it is done."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from tests.system.processes import Esper

FILE = """
name = "stopped"
runs_dir = "{place}/runs"
regional.count = 0
global.count = 0

[trainer]
count = 1
command = ["sh", "{place}/train.sh"]
stop_by = "file"
restart = {{first_s = 0, limit = 1}}
environment = {{ESPER_STOP_STATUS = "75"}}
"""
TRAIN = """
[ -e {place}/again ] && export ESPER_MAX_EPOCHS=1
touch {place}/again
exec {python} -P -m esper.workers.trainer
"""


def test_one_that_is_stopped_early_ends_with_the_status_that_is_set_and_with_0_once_it_is_done(
    swift: Callable[..., Esper], runtime: Path
) -> None:
    (runtime / "run.toml").write_text(FILE.format(place=runtime))
    (runtime / "train.sh").write_text(TRAIN.format(place=runtime, python=shlex.quote(sys.executable)))
    keeper = swift("up", "-f", runtime / "run.toml")
    keeper.says("trainer-0 is ready")

    [run] = runtime.glob("runs/*")
    (run / "stop-trainer-0").touch()

    assert keeper.ended(140.0) == 0, keeper.text
    assert "\ntrainer-0 ended with exit code 75; it is started again in 0 s" in keeper.text
    assert "trainer-0 is done" in keeper.said
