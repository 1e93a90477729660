"""compose.yaml is valid, and every command in it exists and starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from esper.bus.embedded import find_server
from esper.cli.running.ports import free_port
from esper.leyline.keys.keyring import RoleKeyring

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"] == "esper")
# What a trainer starts by itself, and the trainer, which needs more than settings to start.
BESIDE, TRAINER = "esper.workers.runtime", "esper.workers.trainer"
WORKERS = {f"esper.workers.{path.stem}" for path in (ROOT / "workers").glob("[!_]*.py")} - {BESIDE}
# One service of each: regions differ by their settings alone.
SERVERS = {SERVICES[name]["command"][-1]: name for name in reversed(OURS)}
KNOWN = {"image", "build", "command", "environment", "volumes", "depends_on", "healthcheck", "restart", "profiles"}
KNOWN |= {"stop_grace_period", "ports"}


def here(command: list[str]) -> list[str]:
    """The command with the programs of this interpreter."""
    known = {"python": sys.executable, "esper": str(Path(sys.executable).parent / "esper")}
    return [known.get(command[0], command[0]), *command[1:]]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"]} | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def has_compose_client() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0


def faults_of_structure() -> list[str]:
    """What `docker compose config` would refuse, as far as structure shows it."""
    page = yaml.safe_load((ROOT / "compose.yaml").read_text())
    faults = [f"unknown key {key}" for key in page if key not in ("name", "services", "volumes") and key[:2] != "x-"]
    for name, service in SERVICES.items():
        faults += [f"{name}: unknown key {key}" for key in service.keys() - KNOWN]
        faults += [f"{name}: no service {other}" for other in service.get("depends_on", {}) if other not in SERVICES]
        volumes = (volume.split(":")[0] for volume in service.get("volumes", []))
        faults += [
            f"{name}: no volume {volume}"
            for volume in volumes
            if not (ROOT / volume).exists() and volume not in page["volumes"]
        ]
        settings = service.get("environment", {})
        faults += [f"{name}: {key} is no text" for key, value in settings.items() if not isinstance(value, str)]
    return faults


def test_the_file_is_valid() -> None:
    if has_compose_client():
        answer = subprocess.run(["docker", "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True)
        assert answer.stderr == ""
    assert faults_of_structure() == []


def test_there_is_redis_8_and_one_of_each_worker() -> None:
    commands = {SERVICES[name]["command"][-1] for name in OURS}

    assert SERVICES["redis"]["image"] == "redis:8"
    assert commands >= WORKERS


def test_every_service_that_stays_has_a_healthcheck() -> None:
    staying = [name for name in SERVICES if name not in ("keys", "controller")]

    assert [name for name in staying if "test" not in SERVICES[name].get("healthcheck", {})] == []


@pytest.mark.parametrize("name", [SERVERS[worker] for worker in sorted(WORKERS - {TRAINER})])
def test_a_worker_without_settings_names_the_one_that_is_missing(name: str) -> None:
    answer = run(here(SERVICES[name]["command"]))

    said = answer.stdout + answer.stderr
    assert answer.returncode == 2
    assert len(said.splitlines()) == 1
    assert "ESPER_" in said


def test_a_trainer_starts_its_runtime_and_says_what_that_lacks() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    answer = run(here(SERVICES["trainer-0"]["command"]), **alone)

    assert answer.returncode in (1, 2)
    assert "process.failed" in answer.stderr.splitlines()[-1]
    assert "ESPER_" in answer.stderr


def test_the_controller_says_which_run_it_lacks() -> None:
    answer = run(here(SERVICES["controller"]["command"]))

    assert answer.returncode != 0
    assert "ESPER_RUN" in answer.stderr.splitlines()[-1]


def test_the_keys_that_every_process_names_are_made(tmp_path: Path) -> None:
    for folder in ("keys", "master"):
        (tmp_path / folder).mkdir(mode=0o700)
    # `$$` is how the file says `$`; a path stands after a blank.
    written = [part.replace("$$", "$") for part in SERVICES["keys"]["command"]]
    command = [re.sub(" /(keys|master)/", rf" {tmp_path}/\1/", part) for part in written]
    program = str(Path(sys.executable).parent)

    answers = [run(command, ESPER_RUN="digits-00c0ffee", PATH=f"{program}:{os.environ['PATH']}") for _ in range(2)]

    assert [answer.returncode for answer in answers] == [0, 0], answers[-1].stderr
    named = {SERVICES[name]["environment"].get("ESPER_KEYRING", "") for name in OURS} - {""}
    loaded = [RoleKeyring.load(Path(path.replace("/keys", f"{tmp_path}/keys"))) for path in sorted(named)]
    assert {keyring.run_id for keyring in loaded} == {"digits-00c0ffee"}


def test_redis_starts_with_the_settings_given(short_directory: Path) -> None:
    own = ["--port", "0", "--unixsocket", str(short_directory / "compose.sock"), "--dir", str(short_directory)]
    command = [str(find_server()), *SERVICES["redis"]["command"][1:], *own]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready = any("ready to accept connections" in line.lower() for line in server.stdout)
        server.terminate()

    assert ready
