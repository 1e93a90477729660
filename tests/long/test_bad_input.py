"""Whatever is wrong with what a person or a stream hands in is one clear error: the value, and what was expected."""

from __future__ import annotations

import math
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs
from torch import nn

import esper
from esper.bus import connect
from esper.bus.outage import Outage
from esper.errors import BusError, EsperError, SettingError, UnknownRunError
from esper.examples.digits import batches
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime import access, process
from esper.runtime.timekeeping import look_again
from esper.tolaria.rows.rows import Rows
from tests.forked_kit import Forge, module

NOWHERE = "unix:///nonexistent/redis.sock"


def keyring(directory: Path, run_id: str, *roles: Role) -> Path:
    path = directory / "keys.json"
    MasterKeyring.new(time.time_ns()).derive(run_id, roles).save(path)
    return path


def start(forge: Forge, worker: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forge.ended(module(f"esper.workers.{worker}"), environment={"ESPER_REGIONS": "r0", **environment})


def attach(**options: object) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    esper.attach(**{"model": model, "optimizer": optimizer, "sites": ["0"], **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"model": torch.optim.SGD([nn.Parameter(torch.ones(1))])}, "model is 'a SGD'; expected a torch.nn.Module"),
        ({"optimizer": nn.Linear(2, 2)}, "optimizer is 'a Linear'; expected a torch.optim.Optimizer"),
        ({"sites": "head"}, "sites is 'head'; expected a list of names, as ['head']"),
        (
            {"model": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))},
            "model is '1.weight: on the meta device'; expected a tensor with values: build the model on a real device, "
            "or give it to_empty() and its weights before attach(); one that is offloaded between its calls is not "
            "supported",
        ),
    ],
    ids=["model", "optimizer", "sites", "values"],
)
def test_what_is_of_another_kind_than_attach_takes_is_named(given: dict[str, object], line: str) -> None:
    with pytest.raises(SettingError) as refused:
        attach(**given)

    assert str(refused.value) == line


@pytest.mark.parametrize("worker", ["coordinator", "regional", "global_"])
def test_a_worker_for_an_unknown_run_says_so_in_one_line_and_exits_with_2(
    worker: str, forge: Forge, tmp_path: Path
) -> None:
    answer = start(forge, worker, ESPER_RUN="nosuch", XDG_RUNTIME_DIR=str(tmp_path))

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1
    assert "no live run is called 'nosuch'; live runs: none" in answer.stderr


def test_a_port_in_use_is_named(forge: Forge, redis_url: str, run_id: str, tmp_path: Path) -> None:
    path = keyring(tmp_path, run_id, Role.REGIONAL)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = start(
            forge,
            "regional",
            ESPER_RUN=run_id,
            ESPER_REDIS_URL=redis_url,
            ESPER_KEYRING=str(path),
            ESPER_METRICS_PORT=port,
        )

    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert f"ESPER_METRICS_PORT is '127.0.0.1:{port}'; expected an address that is free" in answer.stderr


async def test_a_keyring_of_another_role_run_or_mode_is_refused_before_anything_starts(
    redis_url: str, run_id: str, tmp_path: Path
) -> None:
    path = keyring(tmp_path, run_id, Role.OBSERVER)

    with pytest.raises(SettingError, match="keyring is 'for observer'; expected one for coordinator"):
        await access.find(run_id, redis_url, path, Role.COORDINATOR)
    with pytest.raises(UnknownRunError, match="no live run is called 'other-00000000'"):
        await access.find("other-00000000", redis_url, path, Role.OBSERVER)
    path.chmod(0o644)
    with pytest.raises(SettingError, match="only its owner can read"):
        await access.find(run_id, redis_url, path, Role.OBSERVER)
    with pytest.raises(SettingError, match="expected a readable file"):
        await access.find(run_id, redis_url, tmp_path / "none.json", Role.OBSERVER)


def test_an_error_out_of_a_task_group_is_told_as_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: object) -> None:
        raise ExceptionGroup("of tasks", [ExceptionGroup("inner", [SettingError("role", "x", "one that seals")])])

    with capture_logs() as events:
        status = process.status_of(main)

    assert status == 2
    assert [(event["event"], event["why"]) for event in events] == [
        ("process.failed", "role is 'x'; expected one that seals")
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nosuch": 1}, "attach\\(\\) option is 'nosuch'; expected one of"),
        ({"run": "nosuch"}, "no live run is called 'nosuch'"),
        ({}, "run is not set; expected the name of a live run, by --run, run= or ESPER_RUN; live runs: none"),
        ({"sites": ["nosuch"], "run": "a-00000000", "required": False}, "'nosuch'"),
    ],
)
def test_attach_says_in_one_error_what_it_lacks(
    options: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with pytest.raises(EsperError, match=said) as refused:
        attach(**options)

    assert "\n" not in str(refused.value)


def test_a_data_set_without_examples_is_refused() -> None:
    nothing = (torch.empty(0, 64), torch.empty(0, dtype=torch.int64))

    with pytest.raises(SettingError, match="data set is '0 examples'; expected at least one batch per rank"):
        list(batches(nothing, 0, 0, 1))


def test_a_metric_that_stays_non_finite_is_told_once_and_counted_each_time() -> None:
    rows = Rows(incarnation=1)
    for step, loss in enumerate([1.0, math.nan, math.nan, 1.0, math.inf], start=1):
        rows.add(step, step, {"loss": torch.tensor(loss)})

    table = rows.table()

    assert table is not None
    assert [(event.row, dict(event.attributes)) for event in table.events] == [
        (1, {"loss": "nan"}),
        (4, {"loss": "inf"}),
    ]
    assert {event.level for event in table.events} == {pb.TelemetryLevel.TELEMETRY_CRITICAL}
    assert rows.non_finite == 3


def test_an_outage_is_said_once_however_many_notice() -> None:
    outage = Outage()

    with capture_logs() as events:
        for who in ("inbox", "outbox", "inbox"):
            outage.begins(who, BusError("gone"))
        for who in ("inbox", "inbox", "outbox", "outbox"):
            outage.ends(who)

    assert [event["event"] for event in events] == ["bus.lost", "bus.regained"]


async def test_a_clock_is_looked_at_again_and_a_failed_look_changes_nothing(redis: connect.Redis) -> None:
    clock = Counting()
    async with connect.writer(NOWHERE) as gone:
        with pytest.raises(Enough):
            await look_again(clock, gone, 0.0)
    assert clock.offset_ms is None
    with pytest.raises(Enough):
        await look_again(clock, redis, 0.0)
    assert clock.offset_ms is not None


class Enough(Exception):
    """Ends a loop that has no end."""


class Counting(connect.ServerClock):
    """A clock that is looked at three times."""

    num_tries = 0

    async def look(self, redis: connect.Redis) -> int:
        self.num_tries += 1
        if self.num_tries % 4 == 0:
            raise Enough
        return await super().look(redis)
