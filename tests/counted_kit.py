"""Which functions something calls, without those that a collection of garbage calls meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import esper

OURS = str(Path(esper.__file__).parent)


@contextmanager
def each_call(note: Callable[[FrameType], None]) -> Iterator[None]:
    """Tells `note` of each call of a function in Python. Collections come when they like, and hypothesis times them."""

    def heard(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            note(frame)

    was_enabled = gc.isenabled()
    gc.disable()
    sys.setprofile(heard)
    try:
        yield
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()


def calls_in(turn: Callable[[], object]) -> list[str]:
    """Functions of ours that it calls."""
    called: list[str] = []

    def note(frame: FrameType) -> None:
        if frame.f_code.co_filename.startswith(OURS):
            called.append(frame.f_code.co_qualname)

    with each_call(note):
        turn()
    return called
