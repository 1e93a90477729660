"""What an evaluation in somebody's loop gives becomes notes, whatever else is among it."""

from __future__ import annotations

import math

import pytest
import torch

from esper.leyline import contracts as pb
from esper.leyline.validate.messages import rule_of
from esper.session.loop import SteeredLoop
from tests.rounds import heartbeat
from tests.seed_kit import new_host


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SteeredLoop:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    host = new_host()
    opened = SteeredLoop(["body"], {"required": False})
    opened.open(host, torch.optim.SGD(host.parameters(), lr=0.1), 0)
    return opened


@pytest.mark.parametrize("name", ["eval_accuracy", "val_accuracy", "accuracy"])
def test_accuracy_is_known_by_the_names_of_both_frameworks(loop: SteeredLoop, name: str) -> None:
    loop.measured({"epoch": 2, name: torch.tensor(0.75)})

    assert loop.run is not None
    assert loop.run.status.notes | {name: 0.75} == {"epoch": 2.0, "accuracy": 0.75, name: 0.75}


def test_what_is_no_number_is_left_out_and_too_many_lose_no_report(loop: SteeredLoop) -> None:
    figures = {"confusion": torch.ones(2, 2), "note": "good", "loss": math.nan, **{f"m{at}": at for at in range(100)}}

    loop.measured({**figures, "eval_accuracy": 0.5})
    loop.close()

    assert loop.run is not None
    report = loop.run.close()
    assert math.isnan(report.notes["loss"]) and (report.notes["m3"], report.notes["accuracy"]) == (3.0, 0.5)
    assert not {"confusion", "note"} & set(report.notes)
    farewell = heartbeat()
    farewell.report.CopyFrom(report)
    rule_of(pb.Heartbeat)(farewell)


def test_too_many_notes_of_a_script_lose_no_report(loop: SteeredLoop) -> None:
    assert loop.run is not None
    loop.run.note(**{f"m{at}": float(at) for at in range(100)})
    loop.run.note(accuracy=0.5)

    report = loop.run.close()

    assert (len(report.notes), report.notes["m62"], report.notes["accuracy"]) == (64, 62.0, 0.5)
    farewell = heartbeat()
    farewell.report.CopyFrom(report)
    rule_of(pb.Heartbeat)(farewell)


@pytest.mark.parametrize("name", ["", "x" * 256, "\u00e9" * 128])
def test_a_name_that_no_report_may_hold_loses_no_report(loop: SteeredLoop, name: str) -> None:
    assert loop.run is not None
    loop.run.note(**{name: 1.0, "y" * 255: 2.0})

    report = loop.run.close()

    assert dict(report.notes) == {"y" * 255: 2.0}
    farewell = heartbeat()
    farewell.report.CopyFrom(report)
    rule_of(pb.Heartbeat)(farewell)


def test_nothing_is_noted_before_the_loop_begins() -> None:
    loop = SteeredLoop(["body"], {})

    loop.measured({"eval_accuracy": 0.5})

    assert loop.run is None
