"""A command ends by SIGTERM and SIGHUP with its clean-up, and not by what whoever started it has ignored."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from esper.bench.effort import EFFORTS
from esper.bench.results import Results
from esper.bench.underway import Underway
from esper.cli import interrupting
from esper.cli.bench.run import results_so_far

ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def block(number: signal.Signals, cleaned: list[str]) -> None:
    """Work that is told to end, and would not by itself; what was ignored is passed at once."""
    with interrupting.interruptible():
        try:
            signal.raise_signal(number)
            if signal.getsignal(number) is not signal.SIG_IGN:
                time.sleep(60)
        finally:
            cleaned.append("cleaned")


def coroutine(number: signal.Signals, cleaned: list[str]) -> None:
    async def work() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.sleep(0.0 if signal.getsignal(number) is signal.SIG_IGN else 60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("cleaned")

    interrupting.run(work())


@pytest.mark.parametrize("work", [block, coroutine])
@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_it_as_ctrl_c_does_with_its_clean_up(
    work: Callable[[signal.Signals, list[str]], None], number: signal.Signals
) -> None:
    cleaned: list[str] = []

    with handled(number, signal.SIG_DFL), pytest.raises(KeyboardInterrupt):
        work(number, cleaned)

    assert cleaned == ["cleaned"]


@pytest.mark.parametrize("work", [block, coroutine])
def test_under_nohup_it_outlives_its_terminal(work: Callable[[signal.Signals, list[str]], None]) -> None:
    cleaned: list[str] = []

    with handled(signal.SIGHUP, signal.SIG_IGN):
        work(signal.SIGHUP, cleaned)

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert cleaned == ["cleaned"]


@pytest.mark.parametrize("number", ENDS)
def test_a_measurement_that_is_ended_gives_what_there_is(number: signal.Signals) -> None:
    underway = Underway(EFFORTS["quick"], lambda figure: None, planned=["row"])

    def work() -> Results:
        signal.raise_signal(number)
        time.sleep(60)
        raise AssertionError("it went on")

    with handled(number, signal.SIG_DFL):
        _, interrupted = results_so_far(work, underway)

    assert interrupted
