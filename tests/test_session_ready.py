"""What a trainer says to whoever has started it: that it has joined, and that it trains."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from esper.runtime import notify
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train, unsteered


@pytest.fixture
def told(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What is said to whoever has started this process."""
    path = str(short_directory / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listens:
        listens.bind(path)
        monkeypatch.setenv(notify.SOCKET, path)
        yield listens
    Path(path).unlink()


def test_a_trainer_is_ready_once_it_has_joined_and_says_once_that_it_trains(told: socket.socket) -> None:
    host = new_host()

    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    joined = told.recv(100)
    with suppress(ZeroDivisionError), run.step():
        raise ZeroDivisionError
    with pytest.raises(BlockingIOError):  # a step that fails is none
        told.recv(100)
    train(run, host, 70)

    assert [joined, told.recv(100)] == [notify.READY.encode(), notify.TRAINED.encode()]
    with pytest.raises(BlockingIOError):
        told.recv(100)
