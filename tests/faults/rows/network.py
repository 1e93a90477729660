"""Lines that are slow, cut, silent, or lose a request or part of a reply, under load: none lost or twice, no hang."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.faults.processes import wait_until
from tests.faults.proxy import Proxy
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import Scene, scene
from tests.faults.server import Server

COMMANDER, FOLLOWER = "commander", "follower"
ANSWER_S = 1.5
"""How long the processes wait for a reply; the default of ten seconds only makes a silent line take longer."""
READ_S = 5.5
"""How long a read on a silent line may take to end: its BLOCK and its margin."""
BACKOFF_S = 3.0
MACHINE_S = 5.0  # on which other things run
PATIENCE_S = 60.0
SLOW_S = 0.02


@dataclass(frozen=True, slots=True)
class Lines:
    """The commander's and the follower's."""

    to_commander: Proxy
    to_follower: Proxy
    chance: random.Random

    def any(self) -> Proxy:
        return self.chance.choice((self.to_commander, self.to_follower))


def latency(lines: Lines) -> str:
    """Up to 40 ms more each way, on both lines."""
    for line in (lines.to_commander, lines.to_follower):
        before = line.done["delayed"]
        line.delay(SLOW_S, SLOW_S)
        wait_until(lambda line=line, before=before: line.done["delayed"] > before + 20, "chunks were late", PATIENCE_S)  # type: ignore[misc]
        line.delay(0.0)
    return "latency"


def reset(lines: Lines) -> str:
    """RST on every connection of a line."""
    line = lines.any()
    wait_until(lambda: line.reset() > 0, "there is a connection to reset", PATIENCE_S)
    return "reset"


def request_dropped(lines: Lines) -> str:
    """A publish, or a settlement, that never reaches the server."""
    line, words = lines.chance.choice([(lines.to_commander, b"XADD"), (lines.to_follower, b"EVALSHA")])
    once(line, "request_dropped", lambda: line.drop_request(words))
    return "request_dropped"


def publish_reply_cut(lines: Lines) -> str:
    """The entry is there; its id is not told, or half of it."""
    cut_reply(lines.to_commander, b"XADD", lines.chance.randint(0, 12))
    return "publish_reply_cut"


def settlement_reply_cut(lines: Lines) -> str:
    """The effect and the acknowledgement are there."""
    cut_reply(lines.to_follower, b"EVALSHA", lines.chance.randint(0, 12))
    return "settlement_reply_cut"


def read_reply_cut(lines: Lines) -> str:
    """The entries are pending, and never arrived."""
    cut_reply(lines.to_follower, b"BLOCK", lines.chance.randint(0, 200))
    return "read_reply_cut"


def commander_silent(lines: Lines) -> str:
    silence(lines.to_commander, ANSWER_S)
    return "commander_silent"


def follower_silent(lines: Lines) -> str:
    silence(lines.to_follower, READ_S)
    return "follower_silent"


KINDS: Sequence[Callable[[Lines], str]] = (
    *(latency, reset, request_dropped, publish_reply_cut, settlement_reply_cut, read_reply_cut),
    *(commander_silent, follower_silent),
)


def cut_reply(line: Proxy, words: bytes, after_bytes: int) -> None:
    once(line, "reply_cut", lambda: line.cut_reply(words, after_bytes))


def once(line: Proxy, what: str, order: Callable[[], None]) -> None:
    """Give an order to a line; it has met its traffic on return."""
    before = line.done[what]
    order()
    wait_until(lambda: line.done[what] == before + 1, what, PATIENCE_S)


def silence(line: Proxy, seconds: float) -> None:
    """Half-open until those who wait have given up for good; then a line that works."""
    before, until = line.done["silenced_bytes"], time.monotonic() + seconds
    line.fall_silent()
    wait_until(lambda: time.monotonic() > until and line.done["silenced_bytes"] > before, "it was silent", PATIENCE_S)
    line.speak_again()


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with ExitStack() as stack:
        server = stack.enter_context(Server(directory / "redis", options={"appendfsync": "no"}))
        to_commander, to_follower = (stack.enter_context(Proxy(server.url, seed)) for _ in range(2))
        lines = Lines(to_commander, to_follower, chance)
        stage = stack.enter_context(scene(directory))
        stage.follow(FOLLOWER, lines.to_follower.url, answer_s=ANSWER_S)
        stage.command(COMMANDER, lines.to_commander.url, answer_s=ANSWER_S)
        for kind in order(amounts, chance):
            harm(stage, lines, kind, result)
        accounts = stage.finish(server)
        accounts.check(result, FOLLOWER)
        result.count("acknowledged", len(accounts.acked))
        result.count("refused", len(accounts.refused[FOLLOWER]))
        reasons = {record["reason"] for record in accounts.refused[FOLLOWER]}
        result.expect(reasons <= {"replayed"}, f"refused for {reasons}; expected only what was published twice")
    return result


def order(amounts: Amounts, chance: random.Random) -> list[Callable[[Lines], str]]:
    """Each kind as often as the others, the slow one `silent` times, shuffled."""
    quick = [kind for kind in KINDS if kind is not follower_silent]
    kinds = [quick[number % len(quick)] for number in range(amounts["faults"])] + [follower_silent] * amounts["silent"]
    chance.shuffle(kinds)
    return kinds


def harm(stage: Scene, lines: Lines, kind: Callable[[Lines], str], result: Result) -> None:
    """One fault under load; the run goes on, and how soon."""
    stage.goes_on(COMMANDER)
    result.count(kind(lines))
    mended = time.monotonic()
    stage.goes_on(COMMANDER, timeout_s=PATIENCE_S)
    stage.follows(FOLLOWER, timeout_s=PATIENCE_S)
    went_on_s = time.monotonic() - mended
    result.sample("went_on_s", went_on_s)
    limit_s = ANSWER_S + READ_S + BACKOFF_S + MACHINE_S
    result.expect_soon(went_on_s <= limit_s, f"{went_on_s:.1f} s until it went on after {kind.__name__}")


ROW = Row("network", run, ci={"faults": 7, "silent": 0}, chunk={"faults": 49, "silent": 3}, num_chunks=4)
