"""A row run in both modes of durability, on both kinds of server, and judged by what each promises."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from esper.bus.durability import Wanted
from esper.bus.embedded import find_server
from tests.faults.accounts import Accounts, gaps_told
from tests.faults.row import Amounts, Result
from tests.faults.scene import Scene, effects, entry_ids
from tests.faults.server import Server

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


def judge(result: Result, server: Server, stage: Scene, accounts: Accounts, wanted: Wanted, follower: str) -> None:
    """What Redis holds in the end is what counts: an effect that it lost went with its acknowledgement."""
    there, took = entry_ids(server), effects(server, follower)
    lost = {each for each, record in accounts.acked.items() if record["entry_id"] not in there}
    result.count(f"{wanted}_acknowledged", len(accounts.acked))
    result.count(f"{wanted}_lost", len(lost))
    without = [each for each in accounts.acked if each not in lost and not took[each]]
    twice = [each for each, times in took.items() if times > 1]
    result.expect(not without, f"{wanted}: {len(without)} kept and without effect: {without[:5]}")
    result.expect(not twice, f"{wanted}: {len(twice)} took effect twice: {twice[:5]}")
    result.expect(wanted == "fast" or not lost, f"durable mode lost {len(lost)} acknowledged: {sorted(lost)[:5]}")
    told = gaps_told(stage.log(follower))
    result.expect(lost <= told, f"{wanted}: lost and not told: {sorted(lost - told)[:5]}")
    surplus = {each for each in told if accounts.acked.get(each, {}).get("entry_id") in there}
    result.expect(not surplus, f"{wanted}: told as lost, and there: {sorted(surplus)[:5]}")
