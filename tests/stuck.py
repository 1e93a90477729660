"""Ends a process of pytest whose test stands in native code, where the alarm of pytest-timeout is never looked at."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

STDERR = pytest.StashKey[int]()


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
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from watched(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from watched(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield from watched(item)


def watched(item: pytest.Item) -> Iterator[None]:
    """Each phase has the test's whole time: its alarm rings once, and a teardown may stand still after it.

    The timer is a thread of C that needs no GIL: it writes where every thread stands, and ends the process.
    """
    if limit_s := timeout_s(item):
        after_s = limit_s + item.config.getoption("--stuck-s")
        faulthandler.dump_traceback_later(after_s, exit=True, file=item.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def timeout_s(item: pytest.Item) -> float:
    """What pytest-timeout gives this test; 0: no limit."""
    marker = item.get_closest_marker("timeout")
    asked = (item.config.getoption("timeout"), os.environ.get("PYTEST_TIMEOUT"), item.config.getini("timeout"))
    return float(marker.args[0] if marker else next(each for each in asked if each is not None) or 0.0)
