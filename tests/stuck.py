"""Ends a process of pytest whose test stands in native code, where the alarm of pytest-timeout is never looked at."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Generator

import pytest

STDERR = pytest.StashKey[int]()
ARMED = pytest.StashKey[float]()
MOMENTS_S = 0.2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("esper").addoption(
        "--stuck-s", type=float, default=60.0, help="seconds beyond a test's timeout until its process is ended"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # before a test's output is captured


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()  # who looks for a mistake may take long


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.config.stash[ARMED] = float("-inf")
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    watch(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    watch(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    watch(item)


def watch(item: pytest.Item) -> None:
    """Each phase has the test's whole time: its alarm rings once, and a teardown may stand still after it.

    The timer is a thread of C that needs no GIL: it writes where every thread stands, and ends the process. To set one
    costs as much as an empty phase does, so one that was set moments ago stays: a phase has those less.
    """
    now_s = time.monotonic()
    if now_s - item.config.stash[ARMED] < MOMENTS_S:
        return
    item.config.stash[ARMED] = now_s
    if limit_s := timeout_s(item):
        after_s = limit_s + item.config.getoption("--stuck-s")
        faulthandler.dump_traceback_later(after_s, exit=True, file=item.config.stash[STDERR])


def timeout_s(item: pytest.Item) -> float:
    """What pytest-timeout gives this test; 0: no limit."""
    marker = item.get_closest_marker("timeout")
    asked = (item.config.getoption("timeout"), os.environ.get("PYTEST_TIMEOUT"), item.config.getini("timeout"))
    return float(marker.args[0] if marker else next(each for each in asked if each is not None) or 0.0)
