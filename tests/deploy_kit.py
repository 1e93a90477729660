"""What tests of deploy/ compare with: every setting that a process knows, and how long each may take to end."""

from __future__ import annotations

import ast
from pathlib import Path

from esper.runtime.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
LEADING = ROOT / "esper" / "runtime" / "coordinator" / "assembly.py"  # where the settings of a coordinator stand
WORKERS = {path.stem for path in (ROOT / "workers").glob("*.py") if path.stem not in ("__init__", "runtime")}
TORCHRUN = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""What a trainer reads as torchrun sets it."""


def settings_of(worker: str) -> set[str]:
    """Names of the variables that a worker's process reads. Read and not imported: a trainer would load torch."""
    sources = [ROOT / "workers" / f"{worker}.py"] + ([LEADING] if worker == "coordinator" else [])
    classes = [each for path in sources for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef)]
    lines = [line for each in classes for line in each.body if isinstance(line, ast.AnnAssign)]
    fields = {line.target.id for line in lines if isinstance(line.target, ast.Name)} | set(Settings.model_fields)
    return {PREFIX + name.upper() for name in fields} | (TORCHRUN if worker == "trainer" else set())


def worker_of(command: str) -> str:
    """The worker that a command starts: the last part of the module it names."""
    name = command.rpartition("esper.workers.")[2].split()[0]
    assert name in WORKERS, command
    return name
