"""Importing Esper loads neither torch nor a client of Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from esper.cli.main import HOMES

ROOT = Path(__file__).resolve().parent.parent.parent
# A trainer needs torch, once its settings hold; the processes that only carry messages must not pay for it.
CARRIERS = sorted(path.stem for path in (ROOT / "workers").glob("*.py") if path.stem != "__init__")
ITSELF = "import esper"
BESIDE_EACH_RANK = "import esper.workers.runtime"
OTHERS = [
    "from esper import Controller",
    *(f"import esper.workers.{each}" for each in CARRIERS),
    "import esper.cli.main",
    *(f"import {home.partition(':')[0]}" for home, _ in HOMES.values()),
]
WATCHED = {"torch", "numpy", "sklearn", "grpc_tools", "redis", "google", "structlog", "rich", "opentelemetry"}

Loaded = dict[str, set[str]]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    """By statement, which of the watched libraries a fresh interpreter holds after it and those before it."""
    script = (
        "import json, sys; told = {}\n"
        f"for each in {[ITSELF, BESIDE_EACH_RANK, *OTHERS]}:\n"
        f"    exec(each); told.setdefault(each, [name for name in {sorted(WATCHED)} if name in sys.modules])\n"
        "print(json.dumps(told))"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=150)
    return {statement: set(names) for statement, names in json.loads(answer.stdout).items()}


def test_esper_itself_loads_only_the_standard_library(loaded: Loaded) -> None:
    assert loaded[ITSELF] == set()


def test_what_runs_beside_each_rank_does_without_numpy_and_what_others_load_where_they_find_it(loaded: Loaded) -> None:
    assert "structlog" in loaded[BESIDE_EACH_RANK]
    assert loaded[BESIDE_EACH_RANK] & {"torch", "numpy", "rich", "opentelemetry"} == set()


def test_a_trainer_finds_its_run_without_a_client_of_redis() -> None:
    """What attach() loads of ours, all but torch."""
    script = (
        "import sys, esper.runtime.history.checkpoint_keys; "
        "print('redis' in sys.modules, 'esper.bus.runs' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=150)

    assert answer.stdout.split() == ["False", "True"]


def test_a_look_at_a_model_loads_no_compiler_of_torch() -> None:
    """What `esper sites` imports: the compiler, which torch itself loads with the first optimizer, is most of ours."""
    script = "import sys, esper.kasmina.slots.survey; print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=150)

    assert answer.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("typed", ["status --run none", "tail none", "publish pause --run none"])
def test_a_command_that_asks_a_run_loads_nothing_that_redis_loads_where_it_finds_it(typed: str, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from esper.cli.begin import esper\n"
        "try: esper()\n"
        "finally: print(*(name in sys.modules for name in ('redis', 'esper.client', 'opentelemetry', 'torch')))"
    )
    argv = [sys.executable, "-c", script, *typed.split()]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    answer = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=150)

    assert "no live run is called 'none'" in answer.stderr
    assert answer.stdout.split() == ["True", "True", "False", "False"]


@pytest.mark.parametrize("statement", OTHERS)
def test_what_only_carries_messages_loads_no_torch(loaded: Loaded, statement: str) -> None:
    assert loaded[statement] & {"torch", "sklearn", "grpc_tools"} == set()
