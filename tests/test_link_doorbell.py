"""The trainer's doorbell is rung as long as there may be something to find, and goes with its link."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress

import pytest

from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.runtime.beside.doorbell import mapped, new_doorbell, ring
from esper.runtime.beside.link import Link

MESSAGE = pb.ToTrainer(rows_stored=pb.RowsStored(through_sequence=1))


def linked(control: socket.socket) -> Link:
    """As after a start, but for the process."""
    link = Link({})
    link._control, link._decoder, link.alive = control, FrameDecoder(pb.ToTrainer), True
    control.setblocking(False)
    return link


class Overtaken(socket.socket):
    """One more message comes, and rings, once it has been read."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self.peer.send(encode(MESSAGE))
        ring(self.link.doorbell)
        return data

    peer: socket.socket
    link: Link


def test_what_comes_just_after_a_look_has_rung() -> None:
    ours, peer = socket.socketpair()
    control = Overtaken(fileno=ours.detach())
    link = linked(control)
    control.peer, control.link = peer, link
    peer.send(encode(MESSAGE))

    came = link._receive(control)

    assert (len(came), link.doorbell[0]) == (1, 1)
    peer.close()
    control.close()


def test_a_look_at_a_socket_that_was_full_has_the_next_step_look_again() -> None:
    control, peer = socket.socketpair()
    link, num = linked(control), 0
    peer.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            peer.send(encode(MESSAGE))
            num += 1

    came = link._receive(control)

    assert (len(came), link.doorbell[0]) == (num, 1)
    peer.close()
    control.close()


def test_what_a_lost_runtime_has_said_last_is_heard_behind_its_end() -> None:
    """The trainer may notice as it sends: an abort that is not read by then was acknowledged, and is told by nobody."""
    control, peer = socket.socketpair()
    link = linked(control)
    peer.send(encode(pb.ToTrainer(abort=pb.BarrierAbort(round=3))))
    peer.close()

    link.send(pb.ToRuntime(heartbeat=pb.Heartbeat()))
    was_alive = link.alive
    link.start()
    came = link.poll()
    link.close()

    assert (was_alive, [message.abort.round for message in came]) == (False, [3])


def test_a_link_that_is_let_go_keeps_no_descriptor() -> None:
    link = Link({})
    doorbell = os.fstat(link._doorbell.fileno())
    assert doorbell.st_ino in inodes(doorbell.st_dev)

    del link
    gc.collect()

    assert doorbell.st_ino not in inodes(doorbell.st_dev)


def test_links_that_are_let_go_leave_nothing_behind() -> None:
    """A notebook attaches as often as its cells are run."""
    Link({})
    gc.collect()
    before = len(gc.get_objects())

    for _ in range(100):
        Link({})
    gc.collect()

    assert len(gc.get_objects()) < before + 100


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_forked_child_holds_no_link_open() -> None:
    """A loader's worker lives on for a while: the runtime is to hear at once that its trainer has hung up."""
    pairs = [socket.socketpair() for _ in range(2)]
    links, (stays, goes) = [linked(control) for control, _ in pairs], os.pipe()
    if (child := os.fork()) == 0:
        os.close(goes)
        os.read(stays, 1)  # until the parent has looked
        os._exit(0)

    for link in links:
        link.close()

    for _, peer in pairs:
        peer.settimeout(60.0)
        assert peer.recv(1) == b""
        peer.close()
    os.close(stays)
    os.close(goes)
    os.waitpid(child, 0)


def refused(name: str) -> int:
    raise PermissionError(name)


def test_where_the_kernel_refuses_memory_without_a_name_a_file_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", refused)

    with new_doorbell() as file:
        ring(mapped(file.fileno()))

        assert mapped(file.fileno())[0] == 1


def inodes(device: int) -> list[int]:
    """Of what this process has open there."""
    found = []
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # that of the listing itself is closed by now
            stat = os.fstat(int(name))
            found += [stat.st_ino] if stat.st_dev == device else []
    return found
