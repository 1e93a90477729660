"""A training script that `esper up` keeps goes on where the disk of its log is full; another's is its own."""

from __future__ import annotations

from io import FileIO, TextIOWrapper
from pathlib import Path

import pytest

from esper.runtime.printing import lossy
from tests.forked_kit import Forge, script

LARGEST_BYTES = 65_536
SCRIPT = f"""
import resource, sys
import torch
import esper

model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("before")
run = esper.attach(model, optimizer=optimizer, sites=["0"], required=False)
resource.setrlimit(resource.RLIMIT_FSIZE, ({LARGEST_BYTES}, {LARGEST_BYTES}))
for _ in range(3):
    with run.step() as step:
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        step.loss(loss)
    print("x" * {LARGEST_BYTES}, flush=True)
    print("x" * {LARGEST_BYTES}, file=sys.stderr)
run.close()
"""


def trained(forge: Forge, directory: Path, **environment: str) -> tuple[int, bytes]:
    """How the script ended whose log takes no more than so many bytes, and the log."""
    log = directory / "trainer.log"
    with log.open("ab") as output:
        ended = forge.ended(script(SCRIPT), stdout=output.fileno(), stderr=output.fileno(), environment=environment)
    return ended.returncode, log.read_bytes()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_where_its_run_is_kept_training_goes_on_though_its_log_is_full(
    torch_forge: Forge, tmp_path: Path, unbuffered: str
) -> None:
    status, log = trained(torch_forge, tmp_path, NOTIFY_SOCKET=str(tmp_path / "nobody"), PYTHONUNBUFFERED=unbuffered)

    assert status == 0
    assert log.startswith(b"before\n") and len(log) == LARGEST_BYTES


def test_elsewhere_print_raises_as_it_always_does(torch_forge: Forge, tmp_path: Path) -> None:
    status, log = trained(torch_forge, tmp_path)

    assert status != 0 and len(log) == LARGEST_BYTES


def test_what_an_unbuffered_script_prints_is_in_its_log_at_once(tmp_path: Path) -> None:
    with TextIOWrapper(FileIO(tmp_path / "trainer.log", "w"), write_through=True) as unbuffered:
        stream = lossy(unbuffered)

        stream.write("a line")

        assert (tmp_path / "trainer.log").read_bytes() == b"a line"
