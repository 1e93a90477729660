"""With --json a command prints JSON on stdout, line by line, and nothing else, whichever way it goes."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner

from esper.bus import connect
from esper.bus.names import key
from esper.cli.main import app
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.altered import altered
from tests.checkpoint_kit import RUN, keyring, put as put_checkpoint, store_at
from tests.cli_kit import every_command
from tests.log_kit import began, toy
from tests.morgue_kit import Morgue, cull
from tests.scripted import ScriptedRun, cancelled, rejected, seed_state

LOUD = """
import torch
from torch import nn

class Loud(nn.Linear):
    def forward(self, x):
        print("a forward")
        return super().forward(x)

print("an import")
def make():
    print("a model")
    return nn.Sequential(Loud(4, 4)), torch.zeros(1, 4)
"""
ROOT = Path(__file__).resolve().parent.parent.parent
REFUSED = rejected("", "", pb.ReasonCode.REASON_ILLEGAL_TRANSITION, "cull from DORMANT")
ANSWERS = {"commands": {1: REFUSED}, "optimizer": {}}
OF_LOGS = [
    *(
        "verify toy/run.jsonl",
        "verify older.jsonl --keyring older.json",
        "verify broken/run.jsonl",
        "verify none.jsonl",
    ),
    *("verify toy/run.jsonl --keyring older.json", "audit toy/run.jsonl", "audit toy/run.jsonl --since now"),
    *("diff toy/run.jsonl toy/run.jsonl", "diff toy/run.jsonl other/run.jsonl", "diff toy/run.jsonl broken/run.jsonl"),
    *("replay toy/run.jsonl --dry-run", "replay changed/run.jsonl --dry-run", "replay broken/run.jsonl --dry-run"),
    *("replay older.jsonl --keyring older.json --dry-run", "replay unended/run.jsonl --dry-run", "log toy/run.jsonl"),
    *("log toy/run.jsonl --out copy.jsonl", "report toy/run.jsonl", "report broken/run.jsonl", "report none.jsonl"),
]
OF_RUNS = [
    *(
        "status",
        "tail --no-follow",
        "tail --tier receipts --no-follow -n 1",
        "streams",
        "dead list",
        "dead show LETTER",
    ),
    *("dead list --reason bad_seal", "dead replay LETTER --dry-run", "dead replay LETTER", "dead show 1-1"),
    *("dead purge --dry-run", "dead purge --dry-run --reason stale", "dead purge", "dead purge --yes", "audit"),
    *("streams forget worker-9 --dry-run", "streams forget worker-9", "streams forget nobody", "doctor"),
    *("publish cull s0", "publish cull s1 --no-wait", "publish pause", "publish adjust-optimizer"),
    "publish germinate s3 --site head --blueprint lora --param rank=x",
]
OF_FILES = [
    *("keys new fresh.json", "keys new master.json", "keys list master.json", "keys rotate master.json", "doctor"),
    *("keys derive --run toy-0a1b2c3d --into keys master.json", "keys retire KEY master.json --force"),
    *("keys retire 00000000 master.json", "checkpoints list kept --keyring keyring.json", "checkpoints list empty"),
    *("checkpoints verify kept --keyring keyring.json", "checkpoints verify empty", "checkpoints list none"),
    *("acl toy-0a1b2c3d --out users.acl", "sites loud.py:make", "sites loud.py:none", "ps"),
    *("bench list", "bench list nothing", "bench sum none", "bench compare none none"),
]
ELSEWHERE = {
    **dict.fromkeys(["ps", "restart", "down"], "tests/test_up.py"),
    **{"demo": "tests/system/test_demo.py", "web": "tests/system/test_web_stop.py"},
    **dict.fromkeys(["bench run", "bench compare"], "tests/long/test_bench_cli.py"),
    "bench soak": "tests/system/test_bench_soak.py",
}
"""What starts processes, or measures: the file of tests that reads what it prints."""
UNREAD = {"bench worker", "redis"}


def read(line: str) -> Any:
    """One line of JSON; NaN and Infinity are none."""

    def refused(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    return json.loads(line, parse_constant=refused)


def said(line: str) -> tuple[int, list[Any]]:
    """Exit status, and what stdout says; each line of it is JSON."""
    result = CliRunner().invoke(app, [*line.split(), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, [read(each) for each in result.stdout.splitlines() if each.strip()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands run in, and nothing of any live run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def logs(place: Path) -> Path:
    """A run, one that decided otherwise, one that other code went on with, one that goes on, a torn one, an old one."""
    changed = toy()
    changed.record(0, 8, began=began(esper_version="Esper 0.0.9 (0123456789ab)", resumed=True))
    changed.record(1, 8, began=began(esper_version="Esper 0.0.9 (0123456789ab)", resumed=True))
    written = {"other": toy(second_step=31), "changed": changed, "unended": toy(ended=False), "broken": toy()}
    for name, run in {"toy": toy(), **written}.items():
        (place / name).mkdir()
        run.save(place / name / "run.jsonl")
    broken = place / "broken" / "run.jsonl"
    broken.write_bytes(broken.read_bytes().replace(b"A", b"B", 1000)[:-40])
    with ZipFile(Path(__file__).parent.parent / "earlier_run.zip") as archive:
        archive.extract("run.jsonl", place)
        archive.extract("master.json", place)
    (place / "run.jsonl").rename(place / "older.jsonl")
    (place / "master.json").chmod(0o600)
    MasterKeyring.load(place / "master.json").derive("earlier-00c0ffee", [*Role]).save(place / "older.json")
    return place


@pytest.fixture
def files(place: Path) -> Path:
    """A master keyring, checkpoints of which one is torn, and a model whose code prints."""
    MasterKeyring.new(time.time_ns()).save(place / "master.json")
    keyring().save(place / "keyring.json")
    store = store_at(place / "kept" / RUN / "rank-0")
    put_checkpoint(store, 100)
    tensors = put_checkpoint(store, 200).path / "tensors.safetensors"
    tensors.write_bytes(altered(tensors.read_bytes()))
    (place / "empty").mkdir()
    (place / "loud.py").write_text(LOUD)
    return place


@pytest.mark.parametrize("line", OF_LOGS)
def test_of_a_log(logs: Path, line: str) -> None:
    status, rows = said(line)

    assert rows or status == 2 or line.startswith("audit")


@pytest.mark.parametrize("line", OF_FILES)
def test_of_files_and_of_this_machine(files: Path, line: str) -> None:
    [validity] = MasterKeyring.load(files / "master.json").validities
    status, rows = said(line.replace("KEY", f"{validity.key_id:08x}"))

    assert rows or status == 2 or line in ("checkpoints list empty", "ps")


@pytest.mark.parametrize("line", OF_RUNS)
async def test_of_a_live_run(run: ScriptedRun, redis_reader: connect.Redis, line: str) -> None:
    morgue, stream = Morgue(run, redis_reader), key(run.run_id, "decisions")
    await morgue.junk(b"\x1b[2J")
    letter = await morgue.poison(cull())
    await run.redis.xgroup_create(stream, "worker-9", mkstream=True)
    await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_CULLED))
    answering = [asyncio.create_task(run.serve(failures, stream=stream)) for stream, failures in ANSWERS.items()]

    status, rows = await asyncio.to_thread(said, f"{line.replace('LETTER', letter)} --run {run.name}")

    for each in answering:
        await cancelled(each)
    assert rows or status != 0 or line.startswith("tail")


def test_no_command_is_left_out() -> None:
    able = {
        path for path, command in every_command().items() if "--json" in str([each.opts for each in command.params])
    }
    lines = [*OF_LOGS, *OF_RUNS, *OF_FILES]
    tried = {path for path in able for line in lines if f"{line} ".startswith(f"{path} ")}
    alike = {path for path in able if path.startswith("publish ")}  # one function prints what any of them is answered

    assert able - tried - alike - UNREAD == {*ELSEWHERE} - tried
    assert all('"--json"' in (ROOT / file).read_text() for file in ELSEWHERE.values())
