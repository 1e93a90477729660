"""Units of systemd: they are sound, start what exists, set what is read, and leave a process the time to end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from esper.bus.acl import USERS
from esper.cli.running.fleet import example_file
from esper.runtime.crew.runfile import kinds
from esper.runtime.process import DRAIN_S
from tests.deploy_kit import DEPLOY, WORKERS, settings_of, worker_of

FOLDER = DEPLOY / "systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
UNITS = [*SERVICES, *sorted(FOLDER.glob("*.target"))]
PREFIX = "/opt/esper/bin"
SHUT = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallArchitectures": "native",
    "User": "esper",
    "UMask": "0077",
}


def read(path: Path) -> dict[str, dict[str, list[str]]]:
    """Section -> key -> its values, in order: a key may stand several times, which configparser refuses."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in path.read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            keys = sections.setdefault(head[1], {})
        elif line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            assert equals and re.fullmatch(r"[A-Z][A-Za-z]+", name), line
            keys.setdefault(name, []).append(value)
    return sections


def one(path: Path, key: str) -> str:
    [value] = read(path)["Service"][key]
    return value


def variables(path: Path) -> set[str]:
    given = " ".join(read(path)["Service"].get("Environment", []))
    return {word.partition("=")[0] for word in given.split()}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
def test_systemd_takes_the_units_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(Path(sys.executable).parent)  # whose own path may hold a blank
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PREFIX, str(tmp_path / "bin")))
        (tmp_path / unit.name).chmod(0o644)  # systemd complains of one that anybody may write

    answer = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True,
        text=True,
        timeout=50,
    )

    assert [line for line in answer.stderr.splitlines() if "esper" in line] == []
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_each_unit_says_what_it_is_and_who_wants_it(path: Path) -> None:
    sections = read(path)

    assert set(sections) == ({"Unit", "Service", "Install"} if path in SERVICES else {"Unit", "Install"})
    assert sections["Unit"]["Description"][0] and sections["Install"]["WantedBy"][0]


def test_there_is_a_unit_for_a_whole_run_and_one_for_each_role() -> None:
    started = {path.name: one(path, "ExecStart") for path in SERVICES}

    assert started.pop("esper-run@.service").startswith(f"{PREFIX}/esper up --file /etc/esper/%i.toml ")
    assert {worker_of(command) for command in started.values()} == WORKERS - {"exporter"}
    assert all(command.startswith(f"{PREFIX}/python -m ") for command in started.values())


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_each_service_is_shut_in_and_says_when_it_is_ready(path: Path) -> None:
    assert {key: one(path, key) for key in SHUT} == SHUT
    assert one(path, "Type") == "notify"
    assert one(path, "RestartPreventExitStatus") == "2"  # a bad setting


def test_each_role_gets_the_password_of_its_own_redis_user_alone() -> None:
    for path in SERVICES:
        files = read(path)["Service"].get("EnvironmentFile", [])
        users = [Path(file).stem for file in files if "/redis/" in file]
        if path.name == "esper-run@.service":
            assert users == []  # the run file names the folder
        else:
            worker = worker_of(one(path, "ExecStart"))
            assert users == [{"trainer": "worker", "global_": "global"}.get(worker, worker)]
            assert files[0] == "/etc/esper/run.env" and set(users) <= set(USERS)


def test_roles_set_only_what_their_process_reads() -> None:
    common = {line.partition("=")[0] for line in (FOLDER / "run.env").read_text().splitlines() if line[:1] not in "#"}
    known = set().union(*map(settings_of, WORKERS))

    assert common <= known
    for path in SERVICES:
        if path.name != "esper-run@.service":
            assert variables(path) <= settings_of(worker_of(one(path, "ExecStart"))), path.name
            assert not variables(path) & common, "an EnvironmentFile goes before Environment"


def test_each_has_the_time_to_end_in_order() -> None:
    read_file = example_file()
    whole = read_file.trainer.finish_s + 2 * read_file.settle_s + sum(kind.stop_s for kind in kinds(read_file).values())

    seconds = {path.name: float(one(path, "TimeoutStopSec")) for path in SERVICES}

    assert seconds.pop("esper-run@.service") > whole
    assert min(seconds.values()) > DRAIN_S + 1


def test_trainers_end_before_the_servers_and_a_region_before_the_global_tier() -> None:
    units = {path.name: read(path)["Unit"] for path in UNITS}

    assert "esper-servers.target" in units["esper-trainer@.service"]["After"][0].split()
    assert "esper-global.service" in units["esper-regional@.service"]["After"][0].split()
    for name in ("esper-coordinator.service", "esper-global.service", "esper-regional@.service"):
        assert units[name]["Before"] == units[name]["PartOf"] == ["esper-servers.target"]


def test_a_trainer_is_in_a_region_that_is_folded() -> None:
    common = dict(line.split("=", 1) for line in (FOLDER / "run.env").read_text().splitlines() if line[:1] not in "#")
    given = dict(
        word.split("=", 1) for word in read(FOLDER / "esper-trainer@.service")["Service"]["Environment"][0].split()
    )

    assert given["ESPER_REGION"] in common["ESPER_REGIONS"].split(",")


@pytest.mark.parametrize("name", ["esper-run@.service", "esper-trainer@.service"])
def test_training_that_never_comes_up_is_given_up_however_long_each_start_takes(name: str) -> None:
    """Systemd counts starts within the interval: with a shorter one, slow failures go on without end."""
    path = FOLDER / name
    [interval], [burst] = (read(path)["Unit"][f"StartLimit{key}"] for key in ("IntervalSec", "Burst"))
    longest = sum(float(one(path, key)) for key in ("TimeoutStartSec", "TimeoutStopSec", "RestartSec"))

    assert float(interval) > float(burst) * longest


@pytest.mark.parametrize("name", ["esper-coordinator.service", "esper-global.service", "esper-regional@.service"])
def test_a_server_is_started_again_for_as_long_as_redis_is_away(name: str) -> None:
    """Each start then ends with 1, after ten seconds; what no start mends, a bad setting, ends with 2."""
    path = FOLDER / name

    assert read(path)["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert float(one(path, "RestartSec")) >= 5
