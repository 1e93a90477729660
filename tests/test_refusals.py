"""A flood of what is refused costs a line a second and a bounded number of dead letters, and hides nothing genuine."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from esper.bus.connect import Redis
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.names import key
from esper.errors import EsperError, RefusedError
from esper.leyline import contracts as pb
from esper.runtime.operations.figures import RefusalMetrics
from esper.runtime.serving.loop import serve
from esper.runtime.serving.refusals import NUM_LETTERS, Refusals
from tests.bus_kit import num_pending
from tests.clocks import Clock

JUNK = RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "junk")
STALE = RefusedError(pb.ReasonCode.REASON_STALE, "old")
NONSENSE = RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, "nan")


def test_a_flood_is_told_in_one_line_a_second_with_counts_by_reason() -> None:
    clock = Clock(100.0)
    refusals = Refusals(clock)

    with capture_logs() as events:
        for _ in range(4):
            for error in (JUNK, JUNK, STALE):
                refusals.note("commands", "1-0", error)
            clock.now_s += 0.5

    assert [event["reasons"] for event in events] == [{"bad_seal": 1}, {"bad_seal": 4, "stale": 2}]
    assert refusals.counts == {("commands", "bad_seal"): 8, ("commands", "stale"): 4}


def test_only_so_many_dead_letters_come_of_junk() -> None:
    clock = Clock(100.0)
    refusals = Refusals(clock)

    told = sum(refusals.note("commands", "1-0", JUNK) for _ in range(3 * NUM_LETTERS))
    clock.now_s += 5
    later = sum(refusals.note("commands", "1-0", JUNK) for _ in range(100))

    assert (told, later) == (NUM_LETTERS, 5)
    assert refusals.num_untold == 2 * NUM_LETTERS + 95


def test_what_only_a_holder_of_the_key_can_cause_is_always_told() -> None:
    refusals = Refusals(Clock(100.0))
    for _ in range(2 * NUM_LETTERS):
        refusals.note("commands", "1-0", JUNK)

    assert refusals.note("commands", "2-0", NONSENSE)
    assert refusals.note("commands", "3-0", EsperError("a handler failed"))


async def test_beyond_the_letters_junk_is_acknowledged_and_counted(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    commands, num = key(run_id, "commands"), NUM_LETTERS + 300
    for _ in range(num):
        await redis.execute_command("XADD", commands, "*", "m", "junk")
    refusals = Refusals(Clock(100.0))

    def read(delivery: Delivery) -> None:
        raise JUNK

    def handle(message: None) -> list[tuple[str, bytes]]:
        raise AssertionError("junk was handled")

    inbox = Inbox(redis_reader, redis, commands, "group", "c")
    with capture_logs() as events:
        await serve(inbox, read, handle, Outbox(redis), until_idle=True, refusals=refusals)

    assert await redis.xlen(key(run_id, "dead")) == NUM_LETTERS
    assert await num_pending(redis, commands) == 0
    assert len(events) == 1
    registry = CollectorRegistry()
    registry.register(RefusalMetrics(refusals))
    shown = generate_latest(registry).decode()
    assert f'esper_messages_refused_total{{reason="bad_seal",stream="{commands}"}} {float(num)}' in shown
    assert "esper_messages_refused_untold_total 300.0" in shown
