"""A run whose training script can't begin is never said to be up: what went wrong is told where the run was started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.system.processes import Esper

FILE = """
name = "broken"
[trainer]
count = 1
command = ["python", "train.py"]
restart = { first_s = 0.1, limit = 1 }
"""


REFUSED = """
import esper, torch

model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
esper.attach(model, optimizer=optimizer, sites=["0"], checkpoint_every=10)
"""


def test_a_script_that_dies_at_once_ends_a_detached_start_with_its_last_words(
    esper: Callable[..., Esper], runtime: Path
) -> None:
    (runtime / "train.py").write_text("import nosuch_module\n")
    (runtime / "run.toml").write_text(FILE)

    command = esper("up", "-f", runtime / "run.toml", "--detach", "--runs-dir", runtime / "runs")

    assert command.ended() == 1
    assert "is up" not in command.text
    assert "trainer-0 ended with exit code 1; it is started again in 0.1 s; see " in command.text
    first = command.text.partition("it is started again in 0.1 s; see ")[2].splitlines()[0]
    assert first.endswith("/logs; it said: ModuleNotFoundError: No module named 'nosuch_module'")
    assert command.said[-1].strip() == "ModuleNotFoundError: No module named 'nosuch_module'"


def test_a_script_that_attach_refuses_beside_its_runtime_is_never_said_to_be_up(
    esper: Callable[..., Esper], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(REFUSED)
    (tmp_path / "run.toml").write_text(FILE.replace("train.py", str(tmp_path / "train.py")))

    command = esper("up", "-f", tmp_path / "run.toml", "--detach", "--runs-dir", tmp_path / "runs")

    assert command.ended() == 1
    assert "is up" not in command.text
    assert "process.ready                  unit=trainer-0" not in logged(tmp_path / "runs")
    expected = "expected a folder, as resume or checkpoint_every is given"
    assert command.said[-1].strip() == f"esper.errors.SettingError: checkpoints is not set; {expected}"


def logged(runs: Path) -> str:
    """What has happened to the processes of the one run."""
    [log] = runs.glob("*/logs/up.log")
    return log.read_text()
