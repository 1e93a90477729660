"""A process of ours walks what it holds in hand as seldom as it can afford to."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO

import pytest

from esper.runtime.gc_policy import loading

SCRIPT = """
import asyncio, gc, json, weakref
from esper.runtime import process

class Node:
    def __init__(self) -> None:
        self.itself = self

def walks() -> int:
    return sum(each["collections"] for each in gc.get_stats())

async def main(stopping: asyncio.Event) -> None:
    loaded, before = gc.get_freeze_count(), walks()
    held = [[number] for number in range(10_000)]
    in_hand, oldest = walks() - before, weakref.ref(Node())
    for _ in range(30_000):
        Node()
    print(json.dumps([loaded, in_hand, len(held), oldest() is None]))

process.run(main)
"""


def test_a_full_hand_costs_no_collection_and_cycles_are_still_found() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=150)

    loaded, in_hand, held, found = json.loads(ended.stdout)
    assert loaded > 1_000  # left to themselves: modules, functions, classes
    assert (in_hand, held, found) == (0, 10_000, True)


LOADED = """
import gc, json
from esper.runtime.gc_policy import loading

def walks() -> int:
    return sum(each["collections"] for each in gc.get_stats())

before = walks()
with loading():
    import asyncio
    within = walks() - before
    with loading():
        pass
    still = gc.isenabled()
print(json.dumps([within, still, gc.isenabled()]))
"""


def test_what_is_loaded_is_not_walked_meanwhile() -> None:
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=150)

    assert json.loads(ended.stdout) == [0, False, True]


def test_what_is_to_be_left_out_is_missing_meanwhile_and_to_be_had_again() -> None:
    with loading("this", "json"):
        with pytest.raises(ModuleNotFoundError):
            import_module("this")
        assert import_module("json") is json  # was there before

    with redirect_stdout(StringIO()):
        assert import_module("this").__name__ == "this"


ENDED = """
import atexit, gc, sys
from esper.runtime.gc_policy import end_soon

gc.disable()
atexit.register(print, "ended in order")
if sys.argv[1] != "as ever":
    end_soon()
if sys.argv[1] == "beside triton":
    sys.modules["triton"] = sys

class Node:
    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        print("walked")

Node()
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("soon", ["ended in order"]),
        ("beside triton", ["ended in order", "walked"]),
        ("as ever", ["ended in order", "walked"]),
    ],
)
def test_an_end_that_is_to_come_soon_walks_nothing_unless_triton_would_tell_of_leaks(how: str, said: list[str]) -> None:
    ended = subprocess.run([sys.executable, "-c", ENDED, how], capture_output=True, text=True, timeout=150)

    assert ended.stdout.splitlines() == said
