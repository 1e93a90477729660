"""The consumer's protocol, driven by hand: what it asks for, and in which order, whatever goes wrong."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from esper.bus.faults import LostError, NoGroupError, NoScriptError
from esper.bus.group.consumer import LOSSES_APART_S, SWEEP_AGAIN_S, Consumer, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.pending import Source
from esper.bus.group.settlement import Settlement
from esper.bus.group.settling import settle
from esper.bus.outage import Outage
from esper.bus.protocol import Ask, Pause, RetryPolicy, Steps, Surroundings, T, pairs_of
from esper.errors import BusError

BUS = Path(__file__).resolve().parent.parent / "esper" / "bus"
PROTOCOLS = ("backoff", "consumer", "delivery", "pending", "protocol", "script", "settling")
NOTHING_PENDING: list[Any] = []


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def run(steps: Steps[T], answer: Callable[[Ask], Any], clock: Clock) -> T:
    """Drive a protocol to its end; an answer that is an error is thrown in, a pause lets time pass."""
    reply: Any = None
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                clock.now_s += step.seconds
                reply = False
            else:
                reply = answer(step)
            step = steps.throw(reply) if isinstance(reply, BusError) else steps.send(reply)
    except StopIteration as ended:
        result: T = ended.value
        return result


def consumer(clock: Clock, **pace: Any) -> Consumer:
    return Consumer(Source("s", "g", "c"), Pace(**pace), Surroundings(clock, random.Random(1), Outage()))


class Script:
    """A server that answers commands by name, one prepared answer after the other, then always the last one."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.asked = answers, list[str]()

    def __call__(self, ask: Ask) -> Any:
        words = [str(word) for word in ask.words]
        name = "NEW" if words[0] == "XREADGROUP" and words[-1] == ">" else words[0]
        self.asked.append(name)
        prepared = self.answers[name]
        return prepared.pop(0) if len(prepared) > 1 else prepared[0]


def entries(*ids: str) -> list[Any]:
    return [[b"s", [[entry_id.encode(), [b"m", entry_id.encode()]] for entry_id in ids]]]


def ids(batch: list[Delivery]) -> list[str]:
    return [delivery.entry_id for delivery in batch]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_knows_no_loop_no_library_and_no_clock(name: str) -> None:
    tree = ast.parse(next(BUS.rglob(f"{name}.py")).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {module.partition(".")[0] for module in imported} & {"asyncio", "redis", "time"} == set()
    assert "esper.bus.connect" not in imported


def test_after_a_lost_reply_the_own_pending_list_comes_first_and_again_later() -> None:
    clock = Clock()
    server = Script(XGROUP=[b"OK"], XPENDING=[NOTHING_PENDING], NEW=[LostError("gone"), entries("1-0"), None])
    reader = consumer(clock)

    lost = run(reader.next_batch(), server, clock)
    server.asked.clear()
    found = run(reader.next_batch(), server, clock)
    order = list(server.asked)
    server.asked.clear()
    for _ in range(100):
        clock.now_s += 0.5
        run(reader.next_batch(), server, clock)

    assert (lost, ids(found), order) == ([], ["1-0"], ["XPENDING", "NEW"])
    assert server.asked.count("XPENDING") == len(SWEEP_AGAIN_S)


def test_a_read_that_is_cut_short_is_followed_by_a_sweep() -> None:
    clock = Clock()
    server = Script(XGROUP=[b"OK"], XPENDING=[NOTHING_PENDING], NEW=[None])
    reader = consumer(clock)
    run(reader.next_batch(), server, clock)

    reading = reader.next_batch()
    words = ("XREADGROUP", "GROUP", "g", "c", "COUNT", "256", "BLOCK", "500", "STREAMS", "s", ">")
    assert next(reading) == Ask(words, 500)
    reading.close()
    server.asked.clear()
    run(reader.next_batch(), server, clock)

    assert server.asked[0] == "XPENDING"


def test_a_storm_of_lost_groups_is_one_line_a_second() -> None:
    clock = Clock()
    server = Script(XGROUP=[b"OK"], XPENDING=[NOTHING_PENDING], NEW=[NoGroupError("gone")])
    reader = consumer(clock)

    with capture_logs() as events:
        for _ in range(200):
            run(reader.next_batch(), server, clock)

    lines = [event["event"] for event in events]
    assert set(lines) == {"history.lost"}
    assert len(lines) <= clock.now_s / LOSSES_APART_S + 1
    assert reader.num_history_lost == len(lines)


def test_who_finds_the_group_made_again_by_another_tells_nothing() -> None:
    clock = Clock()
    server = Script(
        XGROUP=[b"OK", BusError("BUSYGROUP")], XPENDING=[NOTHING_PENDING], NEW=[NoGroupError("gone"), entries("1-0")]
    )
    reader = consumer(clock)

    with capture_logs() as events:
        run(reader.next_batch(), server, clock)
        found = run(reader.next_batch(), server, clock)

    assert ids(found) == ["1-0"]
    assert events == []


def test_new_entries_and_a_long_pending_list_take_turns_where_a_group_is_shared() -> None:
    clock = Clock()
    pages = [[[b"%d-0" % number, b"c", 0, 1]] for number in range(1, 40)]
    own = [entries(f"{number}-0") for number in range(1, 40)]
    new = [entries(f"{number}-0") for number in range(100, 140)]
    server = Script(XGROUP=[b"OK"], XAUTOCLAIM=[[b"0-0", []]], XPENDING=pages, XREADGROUP=own, NEW=new)
    reader = consumer(clock, reclaim_after_ms=5_000)

    handed = [ids(run(reader.next_batch(), server, clock))[0] for _ in range(6)]

    assert handed == ["1-0", "100-0", "2-0", "101-0", "3-0", "102-0"]


def test_a_stream_that_is_busy_without_end_keeps_nobody_from_taking_over() -> None:
    clock = Clock()
    server = Script(
        XGROUP=[b"OK"], XAUTOCLAIM=[[b"0-0", []]], XPENDING=[[]], NEW=[entries("1-0"), entries("2-0", "3-0")]
    )
    reader = consumer(clock, reclaim_after_ms=5_000, count=1)

    run(reader.next_batch(), server, clock)
    at_once = reader.may_read_ahead
    clock.now_s += 1.0
    later = reader.may_read_ahead
    run(reader.next_batch(), server, clock)

    assert (reader.full, at_once, later) == (True, True, False)
    assert server.asked.count("XAUTOCLAIM") == 2


def test_nothing_more_is_taken_over_while_the_own_pending_list_is_handed_over() -> None:
    clock = Clock()
    claimed: list[Any] = [b"7-0", [b"1-0", b"2-0", b"3-0"]]
    pages: list[Any] = [[], *([[b"%d-0" % number, b"c", 0, 1]] for number in (1, 2, 3)), []]
    own, new = [entries(f"{number}-0") for number in (1, 2, 3)], [entries(f"{number}-0") for number in range(100, 140)]
    server = Script(XGROUP=[b"OK"], XAUTOCLAIM=[claimed, [b"0-0", []]], XPENDING=pages, XREADGROUP=own, NEW=new)
    reader = consumer(clock, reclaim_after_ms=5_000)

    handed = [ids(run(reader.next_batch(), server, clock))[0] for _ in range(5)]

    assert handed == ["1-0", "100-0", "2-0", "101-0", "3-0"]
    assert server.asked.count("XAUTOCLAIM") == 1
    run(reader.next_batch(), server, clock)
    run(reader.next_batch(), server, clock)
    assert server.asked.count("XAUTOCLAIM") == 2


def test_what_was_taken_over_is_told_once_a_pass_and_not_again() -> None:
    clock = Clock()
    passes: list[Any] = [[b"0-0", [b"1-0", b"2-0"]], [b"0-0", [b"3-0"]], [b"0-0", []]]
    server = Script(XGROUP=[b"OK"], XAUTOCLAIM=passes, XPENDING=[[]], NEW=[entries("9-0")])
    reader = consumer(clock, reclaim_after_ms=5_000)

    with capture_logs() as events:
        for _ in range(8):
            run(reader.next_batch(), server, clock)
            clock.now_s += 1.0

    assert server.asked.count("XAUTOCLAIM") > 3
    assert [event["count"] for event in events if event["event"] == "entries.reclaimed"] == [2, 1]


def test_in_a_group_of_its_own_what_is_pending_comes_first_whole() -> None:
    clock = Clock()
    pages: list[Any] = [[[b"%d-0" % number, b"c", 0, 1]] for number in range(1, 4)]
    own = [entries(f"{number}-0") for number in range(1, 4)]
    server = Script(XGROUP=[b"OK"], XPENDING=[*pages, []], XREADGROUP=own, NEW=[entries("100-0")])
    reader = consumer(clock)

    handed = [ids(run(reader.next_batch(), server, clock))[0] for _ in range(4)]

    assert handed == ["1-0", "2-0", "3-0", "100-0"]


def test_a_settlement_is_repeated_until_answered_with_the_same_token() -> None:
    clock = Clock()
    settlement = Settlement()
    settlement.write("s", b"once")
    asked: list[Ask] = []

    def answer(ask: Ask) -> Any:
        asked.append(ask)
        return [LostError("gone"), NoScriptError("new server"), [b"ok", b"5-0"]][len(asked) - 1]

    policy = RetryPolicy(Surroundings(clock), "outbox", 60.0)
    written = run(settle(settlement, "memory", "7:", policy), answer, clock)

    assert written == ["5-0"]
    assert [ask.words[0] for ask in asked] == ["EVALSHA", "EVALSHA", "EVAL"]
    assert {ask.words[2:] for ask in asked} == {asked[0].words[2:]}


@pytest.mark.parametrize("reply", [[b"a", b"1"], {b"a": b"1"}, [(b"a", b"1")]])
def test_a_map_is_one_in_every_version_of_the_protocol(reply: Any) -> None:
    assert pairs_of(reply) == {b"a": b"1"}
