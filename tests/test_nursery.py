"""What a nursery forks ends as what was started here, and one nursery does for a whole session."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.nursery import SHARED, Born, Nursery, nursed, shared
from tests.faults.processes import ROOT, wait_until

ASKS = """
import json, signal, sys
from pathlib import Path
from tests.faults.nursery import Cradle

place, arguments, log = sys.argv[1:]
asked = Cradle(Path(place)).role("tests.faults.roles.nursery", json.loads(arguments), Path(log)).start()
print(asked.pid, flush=True)
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
