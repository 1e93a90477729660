"""A process that a nursery has forked is asked to end as one that was started here."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.nursery import Born


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
