"""examples/hostile.py: its three attacks are refused, each for its own reason."""

from __future__ import annotations

import asyncio

import pytest

from esper.examples import hostile
from tests.scripted import ScriptedRun, cancelled


async def test_a_forged_a_replayed_and_a_stale_command_are_refused(
    run: ScriptedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = asyncio.create_task(run.serve())

    status = await hostile.main(run.name)
    await cancelled(serving)
    said = capsys.readouterr().out

    assert status == 0
    assert "forged: refused as bad_seal" in said
    assert "replayed: refused as replayed" in said
    assert "stale: refused as stale" in said


async def test_an_attack_that_nobody_refuses_is_a_failure(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hostile, "PATIENCE_S", 0.2)
    serving = asyncio.create_task(run.serve(silent=True))

    status = await hostile.main(run.name)
    await cancelled(serving)

    assert status == 1
    assert "forged: not refused" in capsys.readouterr().out
