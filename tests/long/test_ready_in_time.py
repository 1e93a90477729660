"""How long attach() waits for its runtime is said by whoever trains, and what is too long names what to set."""

from __future__ import annotations

import pytest

import esper
from esper.errors import RuntimeLostError, SettingError
from esper.session.options import READY_S, SessionOptions
from tests.seed_kit import new_host, optimizer_of


def test_an_option_goes_before_the_environment_and_that_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_READY_S", raising=False)
    told = [SessionOptions().patience_s()]
    monkeypatch.setenv("ESPER_READY_S", "300")
    told += [SessionOptions().patience_s(), SessionOptions(ready_s=7).patience_s()]

    assert told == [READY_S, 300.0, 7.0]


@pytest.mark.parametrize("wrong", ["soon", "-1", "nan", "1m"])
def test_what_is_no_time_is_refused_before_a_process_is_started(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("ESPER_READY_S", wrong)

    with pytest.raises(SettingError, match=r"ESPER_READY_S is .*; expected seconds"):
        SessionOptions.of({})
    with pytest.raises(SettingError, match=r"ready_s is .*; expected seconds"):
        SessionOptions.of({"ready_s": wrong})


def test_a_runtime_that_is_late_says_what_to_set() -> None:
    host = new_host()

    with pytest.raises(RuntimeLostError, match=r"not ready within 0 s.*ESPER_READY_S, or attach\(ready_s="):
        esper.attach(host, optimizer=optimizer_of("sgd", [*host.parameters()]), sites=["body"], run="any", ready_s=0)
