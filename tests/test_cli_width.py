"""In a terminal, long lines are broken between words; in a file or a pipe they are whole."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from esper.bus import connect
from esper.bus.names import key
from esper.bus.upkeep import counters
from esper.bus.upkeep.counters import Count
from esper.cli import streams
from esper.cli.audit import audit
from esper.cli.doctor import doctor
from esper.cli.main import app
from esper.cli.output.width import broken
from esper.cli.status import status
from esper.leyline import contracts as pb
from tests.log_kit import toy
from tests.scripted import ScriptedRun, seed_state

WIDTH = 80


class Terminal(StringIO):
    """Where a person reads."""

    def isatty(self) -> bool:
        return True


def seen(command: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints in a terminal of 80 columns."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with monkeypatch.context() as patched, suppress(typer.Exit):
        patched.setattr(sys, "stdout", terminal)
        command()
    return terminal.getvalue()


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_what_goes_on_below_a_line_is_indented_further_than_it() -> None:
    assert broken("  one two three", 12).splitlines() == ["  one two", "      three"]
    assert broken("unbreakable", 4) == "unbreakable"


def test_audit_breaks_lines_between_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = toy().save(tmp_path / "run.jsonl")
    piped = CliRunner().invoke(app, ["audit", str(log)]).stdout

    told = seen(partial(audit, str(log)), monkeypatch)

    assert widest(told) <= WIDTH < widest(piped)
    assert told.split() == piped.split()


def test_doctor_breaks_lines_between_words_and_not_what_to_do_from_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "redis://127.0.0.1:1/0"  # nobody listens there
    piped = CliRunner().invoke(app, ["doctor", "--redis", url]).stdout

    told = seen(partial(doctor, redis=url), monkeypatch)

    assert widest(told) <= WIDTH < widest(piped)
    assert [line.split("-> ")[1][:20] for line in told.splitlines() if line.startswith("      -> ")] == [
        line.split("-> ")[1][:20] for line in piped.splitlines() if line.startswith("      -> ")
    ]


async def test_status_breaks_lines_between_words(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    culled = seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    await run.beat(3, culled)

    told = await asyncio.to_thread(seen, partial(status, run.name), monkeypatch)

    assert widest(told) <= WIDTH
    assert "`esper audit` reads all" in " ".join(told.split())


async def test_streams_break_lines_between_words(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = key(run.run_id, "commands")
    await run.redis.xadd(stream, {"m": b"junk"})
    reasons = ("bad_seal", "malformed", "unknown_key", "out_of_range", "wrong_version", "expired")
    told = [Count("esper_messages_refused_total", {"stream": stream, "reason": each}, 1_000.0) for each in reasons]
    await counters.publish(run.redis, run.run_id, "coordinator/one", told, await connect.server_ms(run.redis))

    shown = await asyncio.to_thread(seen, partial(shown_streams, run.name), monkeypatch)

    assert widest(shown) <= WIDTH
    assert all(f"1000 {reason}" in " ".join(shown.split()) for reason in reasons)


def shown_streams(run: str) -> None:
    asyncio.run(streams._show(run, False, 0.0))
