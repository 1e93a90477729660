"""A count of calls is the same wherever a collection of garbage falls."""

from __future__ import annotations

import gc
from types import FrameType

from tests.counted_kit import each_call


def test_what_a_collection_calls_is_not_counted() -> None:
    phases, called, before = list[str](), list[str](), gc.get_threshold()

    def collected(phase: str, _: object) -> None:
        phases.append(phase)

    def note(frame: FrameType) -> None:
        called.append(frame.f_code.co_name)

    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        with each_call(note):
            num = len([[number] for number in range(100)])
        num += len([[number] for number in range(100)])
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)

    assert (num, "collected" in called, set(phases)) == (200, False, {"start", "stop"})
