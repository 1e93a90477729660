"""Importing Esper loads neither torch nor a client of Redis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A trainer needs torch; the processes that only carry messages must not pay for it.
CARRIERS = sorted(path.stem for path in (ROOT / "workers").glob("*.py") if path.stem not in ("__init__", "trainer"))


def heavy_after(statement: str) -> list[str]:
    """Which of the heavy libraries a fresh interpreter holds after the statement."""
    script = f"{statement}; import sys; print(*sorted({{'torch', 'sklearn', 'grpc_tools'}} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return answer.stdout.split()


def test_esper_itself_loads_only_the_standard_library() -> None:
    script = "import esper, sys; print(*sorted({'redis', 'google', 'torch', 'structlog'} & sys.modules.keys()))"

    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)

    assert answer.stdout.split() == []


def test_the_command_line_loads_no_torch() -> None:
    assert heavy_after("import esper.cli.main") == []


def test_the_controller_client_loads_no_torch() -> None:
    assert heavy_after("from esper import Controller") == []


@pytest.mark.parametrize("worker", CARRIERS)
def test_a_process_that_only_carries_messages_loads_no_torch(worker: str) -> None:
    assert heavy_after(f"import esper.workers.{worker}") == []
