"""The publisher's clock stepped, the stream's poisoned, and entries met long after they were made: what is legal takes
effect once, what is not is refused by name."""

from __future__ import annotations

import random
import time
from pathlib import Path

from esper.leyline import commands, contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.faults.accounts import Accounts, gaps_told
from tests.faults.clock import step
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import COMMANDS, Scene, scene
from tests.faults.server import Server
from tests.faults.stated import FRESH_S

COMMANDER, FOLLOWER = "commander", "follower"
MARGIN_S = 5.0
HOUR_S = 3600.0
OUTAGE_S = 900
NUM_PENDING = 20


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with Server(directory / "redis", options={"appendfsync": "no"}) as server, scene(directory) as stage:
        deliver_long_ago(directory, server)
        result.count("pending_for_long", NUM_PENDING)
        stage.follow(FOLLOWER, server.url)
        stage.command(COMMANDER, server.url, per_s=500.0)
        for number, seconds in enumerate(steps(amounts["steps"], chance)):
            if number == amounts["steps"] // 2:
                poison(server, chance)
                result.count("poisoned_streams")
            step_to(stage, seconds)
            result.count("clock_steps")
        step_to(stage, 0.0)
        judge(result, stage.finish(server))
        told = gaps_told(stage.log(FOLLOWER))
        result.expect(not told, f"refused by name, and told as missing too: {sorted(told)[:5]}")
    return result


def steps(count: int, chance: random.Random) -> list[float]:
    """Within a minute and beyond, ahead and behind, up to an hour; the ends of the range come first."""
    ends = [30.0, -HOUR_S, HOUR_S, -30.0]
    more = [chance.choice((-1, 1)) * chance.choice((legal(chance), beyond(chance))) for _ in range(count)]
    return [*ends, *more][:count]


def legal(chance: random.Random) -> float:
    return chance.uniform(30.0, FRESH_S - MARGIN_S)


def beyond(chance: random.Random) -> float:
    return chance.uniform(FRESH_S + MARGIN_S, HOUR_S)


def step_to(stage: Scene, seconds: float) -> None:
    """Step the commander's clock, and let it publish so for a while."""
    step(stage.directory / "clock", seconds)
    stage.goes_on(COMMANDER, 25)


def poison(server: Server, chance: random.Random) -> None:
    """An entry whose id lies far ahead: from now on the stream counts from there, whatever the server's clock says."""
    ahead_ms = int((time.time() + chance.uniform(FRESH_S, 10 * HOUR_S)) * 1000)
    server.ask("XADD", COMMANDS, f"{ahead_ms}-0", "m", b"of no meaning")
    newest = server.ask("XADD", COMMANDS, "*", "m", b"of no meaning").decode()
    assert newest.startswith(f"{ahead_ms}-"), f"the stream was not poisoned: {newest}"


def deliver_long_ago(directory: Path, server: Server) -> None:
    """Commands that were published, and handed to the follower, a quarter of an hour before it is started again."""
    then_ns = time.time_ns() - OUTAGE_S * 1_000_000_000
    keys = RoleKeyring.load(directory / "controller.json")
    sealer = Sealer(keys, Role.CONTROLLER, "long-ago", clock_ns=lambda: then_ns)
    server.ask("XGROUP", "CREATE", COMMANDS, FOLLOWER, "0", "MKSTREAM")
    for number in range(NUM_PENDING):
        command = commands.seed("s", pb.SeedOperation.SEED_OP_CULL)
        command.command_id = f"long-ago/{number}"
        server.ask("XADD", COMMANDS, f"{then_ns // 1_000_000}-{number}", "m", sealer.seal(command))
    server.ask("XREADGROUP", "GROUP", FOLLOWER, FOLLOWER, "COUNT", NUM_PENDING, "STREAMS", COMMANDS, ">")
    assert server.ask("XPENDING", COMMANDS, FOLLOWER)["pending"] == NUM_PENDING, "they were not handed over"


def judge(result: Result, accounts: Accounts) -> None:
    took = accounts.applied[FOLLOWER]
    reasons = {record["entry_id"]: record["reason"] for record in accounts.refused[FOLLOWER]}
    for each, record in accounts.acked.items():
        if (seconds := record["clock_s"]) is None:
            continue
        times, reason = took[each], reasons.get(record["entry_id"])
        wanted = due(seconds)
        met = (times, reason)
        result.count(wanted[1] or "legal")
        result.expect(
            met == wanted, f"{each}, sealed {seconds:+.0f} s off: applied, refused as {met}; expected {wanted}"
        )
    late = [number for number in range(NUM_PENDING) if took[f"long-ago/{number}"] != 1]
    result.expect(not late, f"redelivered after {OUTAGE_S} s and not applied once: {late}")


def due(seconds: float) -> tuple[int, str | None]:
    """How often a command takes effect that was sealed with the clock so far off, and why it is refused."""
    if abs(seconds) <= FRESH_S:
        return 1, None
    return 0, "from_the_future" if seconds > 0 else "stale"


ROW = Row("clock_steps", run, ci={"steps": 8}, chunk={"steps": 40}, num_chunks=5)
