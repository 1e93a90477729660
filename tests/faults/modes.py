"""A row run in both modes of durability, on both kinds of server."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from esper.bus.durability import Wanted
from esper.bus.embedded import find_server
from tests.faults.row import Amounts, Result

InMode: TypeAlias = Callable[[Path, Wanted, int, Path, random.Random, Result], None]


def in_each_mode(run_mode: InMode, directory: Path, amounts: Amounts, seed: int) -> Result:
    """`run_mode` for each mode in turn, with the number of faults that it is to bring, the server's kind by `seed`."""
    result, chance = Result(), random.Random(seed)
    binaries = [find_server(), Path(shutil.which("redis-server") or find_server())]
    modes: Sequence[Wanted] = ["durable", "fast"]
    for number, wanted in enumerate(modes):
        place = directory / wanted
        place.mkdir()
        run_mode(place, wanted, amounts[wanted], binaries[(number + seed) % 2], chance, result)
    return result
