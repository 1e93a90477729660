"""A bad setting is one line that names it, and exit status 2."""

from __future__ import annotations

import json

import pytest
import structlog
from pydantic import ValidationError

from esper.runtime import logging, settings
from esper.runtime.settings import Settings
from esper.workers.trainer import TrainerSettings


class WorkerSettings(Settings):
    """With one setting that has no default."""

    rank: int


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPER_RANK", "3")
    monkeypatch.setenv("ESPER_REDIS_URL", "redis://somewhere")

    loaded = settings.load(WorkerSettings)

    assert (loaded.rank, loaded.redis_url, loaded.metrics_port) == (3, "redis://somewhere", 0)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ESPER_LOG", "xml", "ESPER_LOG is 'xml'; expected 'console' or 'json'"),
        ("ESPER_METRICS_PORT", "70000", "ESPER_METRICS_PORT is '70000'; expected less than or equal to 65535"),
        ("ESPER_METRICS_PORT", "http", "ESPER_METRICS_PORT is 'http'; expected a valid integer"),
        ("ESPER_REGION", "a}b", "ESPER_REGION is 'a}b'; expected 1 to 40 letters"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(SystemExit) as ended:
        settings.load(Settings)

    output = capsys.readouterr()
    assert ended.value.code == 2
    assert output.out == ""
    assert output.err.startswith(said)
    assert output.err.count("\n") == 1


def test_a_setting_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings.load(WorkerSettings)

    assert capsys.readouterr().err == "ESPER_RANK is not set\n"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        setattr(settings.load(Settings), "run", "other")  # noqa: B010


def test_json_logs_are_one_object_a_line_with_what_was_bound(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure(Settings(log="json"), role="worker", run="digits-1", region="")
    try:
        logging.get_logger().info("epoch.released", epoch=7)
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()

    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp")
    assert line == {"event": "epoch.released", "level": "info", "role": "worker", "run": "digits-1", "epoch": 7}


@pytest.mark.parametrize(
    ("environment", "worker"),
    [({}, "worker-0"), ({"RANK": "1"}, "worker-1"), ({"RANK": "1", "ESPER_NAME": "north"}, "north")],
)
def test_a_trainer_logs_under_the_name_that_the_run_knows_it_by(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], worker: str
) -> None:
    for name in ("RANK", "ESPER_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert settings.load(TrainerSettings).name == worker


def test_a_bad_name_of_a_trainer_is_refused_before_it_loads_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESPER_NAME", "a}b")

    with pytest.raises(SystemExit) as ended:
        settings.load(TrainerSettings)

    assert ended.value.code == settings.EXIT_BAD_SETTING
    assert capsys.readouterr().err.startswith("ESPER_NAME is 'a}b'; expected 1 to 40 letters")
