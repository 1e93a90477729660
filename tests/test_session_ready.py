"""What a trainer says to whoever has started it: that it has joined, and that it trains."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from esper.runtime import notify
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train, unsteered


def test_a_trainer_is_ready_once_it_has_joined_and_says_once_that_it_trains(listens: socket.socket) -> None:
    host = new_host()

    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    joined = listens.recv(100)
    with suppress(ZeroDivisionError), run.step():
        raise ZeroDivisionError
    with pytest.raises(BlockingIOError):  # a step that fails is none
        listens.recv(100)
    train(run, host, 70)

    assert [joined, listens.recv(100)] == [notify.READY.encode(), notify.TRAINED.encode()]
    with pytest.raises(BlockingIOError):
        listens.recv(100)
