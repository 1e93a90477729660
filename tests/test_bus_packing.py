"""What is packed for the wire, also while a signal's handler raises."""

from __future__ import annotations

import subprocess
import sys

import pytest

from esper.bus.client.packing import in_words

INTERRUPTED = """
import signal, time
from esper.bus.client.packing import in_words, packed

class Interrupt(Exception): ...

def interrupt(*_):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
end, interrupted = time.monotonic() + 10, 0
while interrupted < 1_000 and time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-4)
        while True:
            packed([in_words(("XRANGE", "s", "-", "+", "COUNT", 32, "BLOCK", 100))], None)
    except Interrupt:
        interrupted += 1
print("interrupted" if interrupted else "not once")
"""


def test_an_interrupt_while_ints_are_packed_is_an_exception_and_no_crash() -> None:
    pytest.importorskip("hiredis")

    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)

    assert (ran.returncode, ran.stdout.strip()) == (0, "interrupted"), ran.stderr


def test_ints_become_text_and_nothing_else_does() -> None:
    assert in_words((b"a", "b", 3, -1)) == (b"a", "b", "3", "-1")
    assert in_words((True, 1.5)) == (True, 1.5)  # which the packer refuses
