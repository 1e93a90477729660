"""A process that is killed before the n-th thing that it does to files: by n, every point where a crash may meet it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[Callable[[], None]], None]

NAMES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
"""As the interpreter tells its audit hooks of them, before each; os.replace is told as a renaming."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def every_crash(work: Callable[[int], Work]) -> Iterator[int]:
    """Numbers of what a process did before it was killed, one more each time; the last one comes to its end."""
    number, died = 0, True
    while died:
        died = killed_before(number, work(number))
        yield number
        number += 1


def killed_before(number: int, work: Work) -> bool:
    """Do this in a process of its own, which is killed before its next effect after so many; False: it has no more.

    They count from where it calls what it is given.
    """
    sys.stdout.flush()  # else the child may say once more what is still held back
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            work(lambda: sys.addaudithook(_killing(number)))
            failed = 0
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WIFSIGNALED(status), "it failed before it was killed"
    return status != 0


def _killing(number: int) -> Callable[[str, tuple[Any, ...]], None]:
    left = number

    def hook(event: str, facts: tuple[Any, ...]) -> None:
        nonlocal left
        if event in NAMES or (event == "open" and facts[2] & WRITING):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
