"""The server killed and the unsynced end of its log cut: durable mode loses nothing that it acknowledged, fast mode as
much as it says, and tells each by name."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esper.bus.durability import Wanted
from tests.faults.accounts import Accounts
from tests.faults.modes import in_each_mode, judge
from tests.faults.processes import wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import Scene, entry_ids, scene
from tests.faults.stated import EVERYSEC_WINDOW_S
from tests.faults.synced import SyncedServer

COMMANDER, FOLLOWER = "commander", "follower"
FSYNC: dict[Wanted, str] = {"durable": "always", "fast": "everysec"}
LOAD_S: dict[Wanted, tuple[float, float]] = {"durable": (0.2, 0.5), "fast": (0.8, 1.6)}
JUDGING_S = 0.25  # the machine's own delay between a reply and the note of it


@dataclass(frozen=True, slots=True)
class Cut:
    """One loss of power."""

    at_ns: int
    num_bytes: int
    lost: frozenset[str]  # acknowledged commands that it took


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    return in_each_mode(run_mode, directory, amounts, seed)


def run_mode(
    directory: Path, wanted: Wanted, num_losses: int, binary: Path, chance: random.Random, result: Result
) -> None:
    """So many losses of power, one after the other, in the same histories."""
    options = {"appendfsync": FSYNC[wanted], "auto-aof-rewrite-percentage": "0"}
    with SyncedServer(directory / "redis", binary=binary, options=options) as server, scene(directory) as stage:
        stage.follow(FOLLOWER, server.url)
        stage.command(COMMANDER, server.url, wanted=wanted, per_s=500.0)
        stage.goes_on(COMMANDER, 20)
        begun = server.log_file.stat().st_size  # all of it gone is a wipe, which is told as one and not by names
        wait_until(lambda: server.synced_bytes(server.log_file) >= begun, "the beginning is on disk")
        cuts = [lose_power(server, stage, chance, LOAD_S[wanted]) for _ in range(num_losses)]
        accounts = stage.finish(server)
        for cut in cuts:
            result.count(f"{wanted}_power_losses")
            result.count(f"{wanted}_bytes_cut", cut.num_bytes)
        result.count(f"{wanted}_torn", server.num_healed)
        judge(result, server, stage, accounts, wanted, FOLLOWER)
        for cut in cuts:
            judge_window(result, accounts, wanted, cut, already_lost=cuts)


def lose_power(server: SyncedServer, stage: Scene, chance: random.Random, load_s: tuple[float, float]) -> Cut:
    """Under load; on return the run goes on."""
    time.sleep(chance.uniform(*load_s))
    num_bytes = server.lose_power(chance)
    at_ns = time.monotonic_ns()
    told = {record["id"]: record["entry_id"] for record in stage.said(COMMANDER, "acked")}
    before = server.run_id
    server.start()
    assert server.run_id != before, "it is the same run of the server"
    there = entry_ids(server)
    stage.goes_on(COMMANDER)
    stage.follows(FOLLOWER)
    return Cut(at_ns, num_bytes, frozenset(each for each, entry_id in told.items() if entry_id not in there))


def judge_window(result: Result, accounts: Accounts, wanted: Wanted, cut: Cut, already_lost: Sequence[Cut]) -> None:
    """Fast mode: what a cut took was acknowledged within the window before it."""
    earlier = {each for other in already_lost if other.at_ns < cut.at_ns for each in other.lost}
    new = cut.lost - earlier
    if not new:
        return
    window_s = (cut.at_ns - min(accounts.acked[each]["at_ns"] for each in new)) / 1e9
    result.sample(f"{wanted}_window_s", window_s)
    result.expect_soon(
        window_s <= EVERYSEC_WINDOW_S + JUDGING_S,
        f"a loss reached {window_s:.2f} s back; stated: {EVERYSEC_WINDOW_S} s",
    )


ROW = Row("power_loss", run, ci={"durable": 3, "fast": 2}, chunk={"durable": 12, "fast": 8}, num_chunks=5)
