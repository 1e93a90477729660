"""What a nursery forks ends as what was started here, and one nursery does for a whole session."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.nursery import SHARED, Born, Nursery, nursed, shared
from tests.faults.processes import ROOT, wait_until

HANDED = ROOT / "tests" / "system" / "handed"

ASKS = """
import json, signal, sys
from pathlib import Path
from tests.faults.nursery import Cradle

place, arguments, log = sys.argv[1:]
asked = Cradle(Path(place)).role("tests.faults.roles.nursery", json.loads(arguments), Path(log)).start()
print(asked.pid, flush=True)
signal.pause()
"""

HEEDS = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
print("up", flush=True)
signal.pause()
"""


def test_a_signal_to_one_that_is_buried_already_and_not_told_of_yet_is_no_error(short_directory: Path) -> None:
    place, gone = short_directory / "burying.sock", subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    gone.wait()
    with socket.socket(socket.AF_UNIX) as nursery, ThreadPoolExecutor(1) as client:
        nursery.bind(str(place))
        nursery.listen()
        asked = client.submit(Born, place, {"module": "gone"})
        connection, _ = nursery.accept()
        with connection:
            connection.sendall(b"%d\n" % gone.pid)
            born = asked.result()

            born.terminate()
            connection.sendall(b"%d\n" % -signal.SIGTERM)

    assert born.wait(60.0) == -signal.SIGTERM


def test_a_session_shares_its_nursery_with_whoever_needs_no_more_than_that_has_imported(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SHARED, raising=False)
    own, session = short_directory / "own", short_directory / "session"
    own.mkdir()
    session.mkdir()

    with shared(session, {"plain": ["this", "json.tool"]}):
        assert "json.tool" not in os.environ[SHARED]  # by which a process that is started meanwhile would be known
        with nursed(own, ["this"]) as lent:
            born = lent.started("this", tmp_path / "said.log", {})
            assert born.wait(60.0) == 0
        with nursed(own, ["this", "calendar"]) as other:
            sockets = (lent.socket, other.socket)

    assert sockets == (session / "plain" / "nursery.sock", own / "nursery.sock")
    assert "Namespaces are one honking great idea" in (tmp_path / "said.log").read_text()
    assert SHARED not in os.environ


def test_what_was_asked_for_dies_with_whoever_asked_for_it(short_directory: Path, tmp_path: Path) -> None:
    place = short_directory / "inner.sock"
    inner = {"modules": [], "socket": str(place)}  # one that ends by itself would show nothing
    with Nursery(short_directory, []) as nursery:
        told = [str(nursery.socket), json.dumps(inner), str(tmp_path / "said.log")]
        with subprocess.Popen([sys.executable, "-c", ASKS, *told], cwd=ROOT, stdout=subprocess.PIPE) as asking:
            assert asking.stdout is not None
            pid = int(asking.stdout.readline())
            wait_until(place.exists, "it has begun")
            asking.kill()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it is gone too")


@pytest.fixture
def own_directory(short_directory: Path) -> Iterator[Path]:
    """Of one test, where sockets of others don't lie."""
    with TemporaryDirectory(dir=short_directory) as own:
        yield Path(own)


def test_what_was_forked_knows_by_which_words_it_would_have_been_started(own_directory: Path, tmp_path: Path) -> None:
    log, text = tmp_path / "said.log", "import sys; print(sys.orig_argv[1:])"
    with Nursery(own_directory, []) as nursery:
        born = Born(nursery.socket, {"text": text, "words": ["one"], "environment": {}, "log": str(log)})

        assert born.wait(60.0) == 0

    assert log.read_text() == f"{['-c', text, 'one']}\n"


def handed(directory: Path, nursery: Nursery) -> subprocess.Popen[bytes]:
    """Stands in, for as long as that lives, for a nursery that this one has forked."""
    place, told = directory / "inner.sock", directory / "handed"
    told.write_text(f"tests.faults.roles.nursery {nursery.socket}\n")
    standing_in = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.faults.roles.nursery", json.dumps({"modules": [], "socket": str(place)})],
        env={**os.environ, "HANDED_OVER": str(told), "PYTHONPATH": os.pathsep.join([str(HANDED), str(ROOT)])},
    )
    wait_until(place.exists, "it has begun")
    return standing_in


def refuses(place: Path) -> bool:
    """Whether nobody listens there any more."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(place)) == errno.ECONNREFUSED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_stands_in_passes_a_signal_on_and_ends_by_it(own_directory: Path, number: signal.Signals) -> None:
    with Nursery(own_directory, []) as nursery, handed(own_directory, nursery) as standing_in:
        standing_in.send_signal(number)

        assert standing_in.wait(60.0) == -number
        wait_until(lambda: refuses(own_directory / "inner.sock"), "what was forked has ended")


def test_who_stands_in_passes_on_what_came_before_the_other_one_was_known(own_directory: Path) -> None:
    place, told = own_directory / "nursery.sock", own_directory / "handed"
    told.write_text(f"json.tool {place}\n")
    environment = {**os.environ, "HANDED_OVER": str(told), "PYTHONPATH": os.pathsep.join([str(HANDED), str(ROOT)])}
    with ExitStack() as stack:
        other = stack.enter_context(subprocess.Popen([sys.executable, "-I", "-S", "-c", HEEDS], stdout=subprocess.PIPE))
        stack.callback(other.kill)
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        nursery = stack.enter_context(socket.socket(socket.AF_UNIX))
        nursery.bind(str(place))
        nursery.listen()
        ignoring = f"trap '' HUP; exec {shlex.quote(sys.executable)} -P -m json.tool"  # as below nohup
        standing_in = stack.enter_context(subprocess.Popen(["sh", "-c", ignoring], env=environment))
        stack.callback(standing_in.kill)
        connection = stack.enter_context(nursery.accept()[0])

        standing_in.send_signal(signal.SIGHUP)
        connection.sendall(b"%d\n" % other.pid)

        assert other.wait(60.0) == -signal.SIGHUP
        connection.sendall(b"%d\n" % -signal.SIGHUP)
        assert standing_in.wait(60.0) == -signal.SIGHUP


def test_who_stands_in_ends_with_the_nursery_and_begins_nothing_itself(own_directory: Path) -> None:
    with Nursery(own_directory, []) as nursery, handed(own_directory, nursery) as standing_in:
        nursery.kill()

        try:
            assert standing_in.wait(20.0) == -signal.SIGKILL
        finally:
            standing_in.kill()


def test_a_nursery_of_the_session_that_could_not_import_says_so_at_once(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SHARED, raising=False)

    with (
        shared(short_directory, {"plain": ["json.nosuch"]}),
        pytest.raises(AssertionError, match=r"No module named 'json\.nosuch'"),
        nursed(short_directory, ["json.nosuch"]),
    ):
        pass
