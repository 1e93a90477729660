"""The embedded server: private, durable, gone with its parent."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from esper.bus import connect, embedded
from esper.bus.embedded import EmbeddedRedis
from esper.errors import BusError, SettingError
from tests.forked_kit import ENDED_S, Forge, script

PARENT = """
import sys
from pathlib import Path
from esper.bus.embedded import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1]))
server.start()
print(server.process.pid, flush=True)
sys.stdin.read()
"""


async def test_it_answers_on_a_private_socket_and_passes_our_own_check(short_directory: Path) -> None:
    directory = short_directory / "private"

    with EmbeddedRedis(directory) as server:
        async with connect.writer(server.url) as redis:
            await connect.check_server(redis)
        mode = stat.S_IMODE(directory.stat().st_mode)

    assert mode == 0o700
    assert not server.socket.exists()


def test_it_stops_in_order(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STOP_S", 60.0)  # it may stand still
    server = EmbeddedRedis(short_directory / "stops")
    server.start()
    process = server.process
    assert process is not None

    server.stop()

    assert process.returncode == 0  # by a signal it would have been cut short in what it writes


async def test_what_was_acknowledged_survives_a_kill_of_the_server(short_directory: Path) -> None:
    server = EmbeddedRedis(short_directory / "killed")
    server.start()
    async with connect.writer(server.url) as redis:
        await redis.set("kept", b"1")

    server.kill()
    server.start()

    async with connect.writer(server.url) as redis:
        assert await redis.get("kept") == b"1"
    server.stop()


def test_it_dies_with_its_parent_and_leaves_no_socket(short_directory: Path) -> None:
    directory = short_directory / "orphan"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    server = os.pidfd_open(int(parent.stdout.readline()))

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()

    wait_until_gone(server)
    assert not (directory / "redis.sock").exists()


def wait_until_gone(pidfd: int) -> None:
    """Block until the process is gone; fail after two minutes."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(120_000)
    os.close(pidfd)


def test_a_path_too_long_for_a_socket_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="at most 100 bytes"):
        EmbeddedRedis(Path("/tmp") / ("x" * 100))


def test_a_directory_that_cannot_be_made_is_named(short_directory: Path) -> None:
    (short_directory / "file").write_bytes(b"")

    with pytest.raises(BusError, match=r"can't be started in .*/file/redis: Not a directory"):
        EmbeddedRedis(short_directory / "file" / "redis").start()


def test_a_second_server_in_one_directory_is_refused(short_directory: Path) -> None:
    with EmbeddedRedis(short_directory / "taken"), pytest.raises(BusError, match="already listens"):
        EmbeddedRedis(short_directory / "taken").start()


def test_a_start_that_fails_says_what_the_server_said(short_directory: Path) -> None:
    directory = short_directory / "broken"
    directory.mkdir()
    (directory / "appendonly.aof").write_bytes(b"*9999999999\r\nnot an append-only file")

    with pytest.raises(BusError, match="did not start"):
        EmbeddedRedis(directory).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_esper_redis_prints_its_url_and_a_signal_leaves_nothing_behind(number: signal.Signals, forge: Forge) -> None:
    with forge.talking(script("from esper.cli.redis import app; app()")) as (process, output, _):
        place = Path(output.readline().strip().removeprefix("unix://"))
        there = place.exists()

        process.send_signal(number)
        status = process.wait(ENDED_S)

    assert there
    assert status == 0
    assert not place.parent.exists()


@contextmanager
def answered_by(place: Path, *answers: bytes) -> Iterator[tuple[EmbeddedRedis, list[bytes]]]:
    """A server whose place another one has taken, that says these in turn, and then is gone; what that one is asked."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        place.mkdir()
        server = EmbeddedRedis(place)
        server.process = process
        listener.bind(str(server.socket))
        listener.listen()
        listener.settimeout(60.0)

        def answer() -> None:
            for said in answers:
                caller, _ = listener.accept()
                with caller, caller.makefile("rb") as words:
                    heard.append(words.readline())
                    caller.sendall(said)
            listener.close()

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        yield server, heard
        answering.join()


def test_one_that_loads_for_longer_than_a_start_may_take_is_waited_for(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_S", 0.0)
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"

    with answered_by(short_directory / "loading", loading, loading, b"+PONG\r\n") as (server, heard):
        server.log.touch()
        server.wait()

    assert heard == [b"PING\r\n"] * 3


def test_one_that_dies_while_its_torn_log_is_written_anew_has_not_started(short_directory: Path) -> None:
    with answered_by(short_directory / "dies", b"+PONG\r\n") as (server, _):
        server.log.write_bytes(embedded.TORN)

        with pytest.raises(BusError, match=r"did not start in .*: Truncating the AOF"):
            server.wait()


@pytest.mark.parametrize("num_before", [0, 1 << 20])  # more than one look at a socket brings
def test_one_that_does_not_come_to_the_end_of_its_torn_log_is_not_left_running(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch, num_before: int
) -> None:
    monkeypatch.setattr(embedded, "START_S", -1.0)
    said = b"#" * num_before + b"\r\naof_rewrite_in_progress:1\r\n"
    underway = b"$%d\r\n%b\r\n" % (len(said), said)
    place = short_directory / f"slow{num_before}"

    with answered_by(place, b"+PONG\r\n", b"+started\r\n", underway) as (server, heard):
        server.log.write_bytes(embedded.TORN)

        with pytest.raises(BusError, match=r"did not rewrite its torn log in .*: Truncating the AOF"):
            server.wait()
        is_running = server.is_running()

    assert heard[1:] == [b"BGREWRITEAOF\r\n", b"INFO persistence\r\n"]
    assert not is_running


def test_one_that_stands_still_before_its_torn_log_is_written_anew_is_waited_for(short_directory: Path) -> None:
    with EmbeddedRedis(short_directory / "still") as server:
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        going_on = threading.Timer(1.5, os.kill, (server.process.pid, signal.SIGCONT))
        going_on.start()

        server.rewrite()

        going_on.join()
        assert server.is_running()


async def test_a_transaction_torn_by_a_power_loss_never_takes_half_its_effect(short_directory: Path) -> None:
    server = EmbeddedRedis(short_directory / "torn", appendfsync="always")
    server.start()
    for word in ("half", "again"):
        async with connect.writer(server.url) as redis:
            await redis.execute_command("EVAL", f"for _ = 1, 2 do redis.call('RPUSH', 'list', '{word}') end", 0)
        server.kill()
        if word == "half":
            [log] = [*server.directory.glob("appendonlydir/*.incr.aof"), *server.directory.glob("appendonly.aof")]
            os.truncate(log, log.read_bytes().rindex(b"half"))
        server.start()

    async with connect.writer(server.url) as redis:
        assert await redis.lrange("list", 0, -1) == [b"again", b"again"]
    server.stop()
