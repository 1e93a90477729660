"""Rows that can work on a CUDA device: where they do, what they say of it, and one that is not there."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from esper.bench.device import DEVICE, choose
from esper.bench.machine import this_machine
from esper.bench.registry import registered
from esper.bench.row import Comparison
from esper.cli.main import app
from esper.errors import SettingError

ROWS = registered()


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    there = "cpu, cuda, cuda:0" if torch.cuda.is_available() else "cpu"

    with pytest.raises(SettingError) as refused:
        choose(name)

    assert str(refused.value).startswith(f"--device is {name!r}; expected one that torch sees: {there}")


def test_a_run_that_asks_for_one_ends_before_anything_is_measured() -> None:
    result = CliRunner().invoke(app, ["bench", "run", "kd-loss", "--device", "cuda:99"])

    assert result.exit_code != 0
    assert "measured kd-loss" not in result.stderr


def test_the_processor_that_is_asked_for_is_the_one_that_is_used_anyhow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEVICE, raising=False)
    usual = this_machine().key
    monkeypatch.setenv(DEVICE, "cuda")

    choose("cpu")

    assert this_machine().key == usual


def test_each_row_says_where_it_works_once_a_device_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    step, transition = ROWS["step-overhead"], ROWS["state-transition"]
    assert isinstance(step, Comparison) and isinstance(transition, Comparison)
    usual = step.conditions, this_machine().key

    monkeypatch.setenv(DEVICE, "cuda:1")

    assert step.conditions == f"{usual[0]}; on cuda:1"
    assert transition.conditions.endswith("; on the processor")
    assert this_machine().key != usual[1]  # figures of two devices are never compared
