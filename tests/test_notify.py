"""What a process says to whoever has started it: heard where many speak at once, and no fault where it can't be."""

from __future__ import annotations

import resource
import socket
import threading
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from esper.runtime import notify

OTHER = b"READY=1"


def test_what_is_said_to_one_who_has_no_room_is_heard_once_there_is_some(
    listens: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "ROOM_S", 600.0)
    fill(listens)

    speaks = threading.Thread(target=notify.tell, args=[notify.TRAINED])
    speaks.start()
    speaks.join(0.1)  # who does not wait has lost it by then
    heard = set[bytes]()
    while speaks.is_alive():
        heard |= drained(listens)
    speaks.join()

    assert heard | drained(listens) == {OTHER, notify.TRAINED.encode()}


def fill(listens: socket.socket) -> None:
    """Others speak, until there is no room for one more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as others, suppress(BlockingIOError):
        while True:
            others.sendto(OTHER, listens.getsockname())


def drained(listens: socket.socket) -> set[bytes]:
    found = set[bytes]()
    with suppress(BlockingIOError):
        while True:
            found.add(listens.recv(100))
    return found


def test_a_process_without_a_descriptor_to_say_it_by_goes_on(listens: socket.socket) -> None:
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as events:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            notify.ready()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    [event] = events
    assert (event["event"], event["why"]) == ("notice.unheard", "[Errno 24] Too many open files")
    assert drained(listens) == set()
