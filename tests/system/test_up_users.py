"""`esper up` on a Redis with a user for each role: its processes hold their own user's password, and no other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from esper.bus.acl import ADMIN, USERS, user_name
from esper.bus.client.credentials import completed
from esper.bus.connect import writer
from esper.bus.embedded import EmbeddedRedis
from esper.bus.passwords import file_of, variables
from esper.cli.main import app
from esper.leyline.keys.keyring import KEYRINGS, MasterKeyring
from esper.runtime.crew.runfile import parse
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.system.processes import buried

FILE = """
name = "toy"
ready_s = 600.0
redis = "redis://{host}:{port}/0"
keys = "{directory}/keys"
passwords = "{directory}/passwords"
runs_dir = "{directory}/runs"
trainer.count = 0

[process.stranger]
command = ["sleep", "600"]
keys = "worker"
"""


def invoked(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def run_file(run_id: str, short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run with keys and passwords, and a server that lets in its users alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    for name in [name for name in os.environ if name.startswith("ESPER_")]:
        monkeypatch.delenv(name)
    master, (port,) = MasterKeyring.new(time.time_ns()), free_ports(1)
    (tmp_path / "keys").mkdir()
    for keyring, roles in KEYRINGS.items():
        master.derive(run_id, roles).save(tmp_path / "keys" / f"{keyring}.json")
    invoked("acl", run_id, "--out", str(tmp_path / "users.acl"))
    (tmp_path / "run.toml").write_text(FILE.format(host=HOST, port=port, directory=tmp_path))
    options = {"port": str(port), "bind": HOST, "aclfile": str(tmp_path / "users.acl")}
    with EmbeddedRedis(short_directory / run_id, binary=newer_server(), options=options):
        yield tmp_path / "run.toml"


@pytest.fixture
def keeper(run_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`esper up` on that file, once every process is ready."""
    hears, tells = os.pipe()
    words = ["up", "-f", str(run_file), "--told-fd", str(tells)]
    process = subprocess.Popen([sys.executable, "-P", "-m", "esper.cli.main", *words], pass_fds=(tells,))
    os.close(tells)
    try:
        with open(hears, "rb") as told:
            assert told.readline(), "it has ended before"
        yield process
    finally:
        process.terminate()
        buried(process)


def environment(pid: int) -> dict[str, str]:
    """What a process was started with."""
    text = Path(f"/proc/{pid}/environ").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


async def users_of_connections(url: str) -> set[str]:
    """Under whose names somebody is connected."""
    async with writer(url) as redis:
        told: Any = await redis.execute_command("CLIENT", "LIST")
    return {word.removeprefix("user=") for word in told.decode().split() if word.startswith("user=")}


def test_each_process_holds_the_password_of_its_own_user_alone(
    keeper: subprocess.Popen[bytes], run_file: Path, run_id: str
) -> None:
    folder, url = run_file.parent / "passwords", parse(run_file.read_text(), "run.toml").redis
    passwords = {user: variables(file_of(folder, run_id, user), "")["ESPER_REDIS_PASSWORD"] for user in USERS}
    own = {"regional-r0": "regional", "global": "global", "coordinator": "coordinator", "stranger": "worker"}

    pids = {row["name"]: row["pid"] for row in map(json.loads, invoked("ps", "toy", "--json").stdout.splitlines())}
    status = json.loads(invoked("status", "--run", "toy", "--json").stdout)
    connected = asyncio.run(users_of_connections(completed(url, variables(file_of(folder, run_id, ADMIN), ""))))
    held = {name: environment(pid) for name, pid in {**pids, "up": keeper.pid}.items()}
    invoked("down", "toy")

    users = {name: told.get("ESPER_REDIS_USERNAME") for name, told in held.items()}
    assert users == {"up": None} | {name: user_name(run_id, role) for name, role in own.items()}
    known = {name: [user for user in USERS if passwords[user] in told.values()] for name, told in held.items()}
    assert known == {"up": []} | {name: [role] for name, role in own.items()}
    assert status["run"] == run_id
    assert connected >= {user_name(run_id, user) for user in ("regional", "global", "coordinator")}
    assert keeper.wait(60) == 0
