"""The server killed and the unsynced end of its log cut: durable mode loses nothing that it acknowledged, fast mode as
much as it says, and tells each by name."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esper.bus.durability import Wanted
from tests.faults.accounts import Accounts, gaps_told
from tests.faults.modes import in_each_mode
from tests.faults.processes import wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import Scene, effects, entry_ids, scene
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
        judge(result, server, stage, accounts, wanted, cuts)


def lose_power(server: SyncedServer, stage: Scene, chance: random.Random, load_s: tuple[float, float]) -> Cut:
    """Under load; on return the run goes on."""
    until = time.monotonic() + chance.uniform(*load_s)
    wait_until(lambda: time.monotonic() >= until, "there was load")
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


def judge(
    result: Result, server: SyncedServer, stage: Scene, accounts: Accounts, wanted: Wanted, cuts: Sequence[Cut]
) -> None:
    """What Redis holds in the end is what counts: an effect that went with the power went with its acknowledgement."""
    there = entry_ids(server)
    lost = {each for each, record in accounts.acked.items() if record["entry_id"] not in there}
    took = effects(server, FOLLOWER)
    result.count(f"{wanted}_acknowledged", len(accounts.acked))
    result.count(f"{wanted}_lost", len(lost))
    without = [each for each in accounts.acked if each not in lost and not took[each]]
    twice = [each for each, times in took.items() if times > 1]
    result.expect(not without, f"{wanted}: {len(without)} kept and without effect: {without[:5]}")
    result.expect(not twice, f"{wanted}: {len(twice)} took effect twice: {twice[:5]}")
    if wanted == "durable":
        result.expect(not lost, f"durable mode lost {len(lost)} acknowledged: {sorted(lost)[:5]}")
    told = gaps_told(stage.log(FOLLOWER))
    result.expect(lost <= told, f"{wanted}: lost and not told: {sorted(lost - told)[:5]}")
    surplus = {each for each in told if accounts.acked.get(each, {}).get("entry_id") in there}
    result.expect(not surplus, f"{wanted}: told as lost, and there: {sorted(surplus)[:5]}")
    for cut in cuts:
        judge_window(result, accounts, wanted, cut, already_lost=cuts)


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
