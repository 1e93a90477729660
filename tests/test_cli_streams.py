"""`esper streams`: how each stream stands, what was refused on it, and groups that can be forgotten."""

from __future__ import annotations

import json
import math
import sys
import time

from prometheus_client import CollectorRegistry, Counter

from esper.bus import connect
from esper.bus.group.inbox import Inbox
from esper.bus.names import key, region_key
from esper.bus.upkeep import counters
from esper.bus.upkeep.counters import Count
from esper.bus.upkeep.survey import Group, StreamView
from esper.bus.upkeep.trim import Retention
from esper.cli.streams import row, table
from esper.leyline.kinds import Role
from esper.runtime.operations.figures import Repeats, StreamGauges, counts_of
from esper.runtime.operations.tallies import REDELIVERED, redelivered
from esper.runtime.operations.tidying import StreamUpkeep
from tests.bus_kit import drain, put
from tests.cli_kit import called
from tests.rounds import heartbeat
from tests.scripted import ScriptedRun


async def said(run: ScriptedRun, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper streams`."""
    return await called("streams", *words)


async def pending_votes(run: ScriptedRun, reader: connect.Redis) -> str:
    """Three votes, two of them handed out."""
    stream = key(run.run_id, "votes")
    await put(run.redis, stream, b"1", b"2")
    await drain(Inbox(reader, run.redis, stream, "coordinator", "c"))
    await put(run.redis, stream, b"3")
    return stream


def test_counts_that_no_process_can_have_are_added_up_all_the_same() -> None:
    """Anybody may have written them."""
    most = [Count(REDELIVERED, {"stream": "votes", "group": "coordinator"}, sys.float_info.max)]

    assert redelivered("votes", "coordinator", [most, most]) == 2 * int(sys.float_info.max)


async def test_a_count_that_somebody_made_up_moves_no_cursor(run: ScriptedRun) -> None:
    votes = key(run.run_id, "votes")
    await put(run.redis, votes, b"1")
    made_up = Count("esper_messages_refused_total", {"stream": votes, "reason": "\x1b[2J"}, 1.0)
    await counters.publish(run.redis, run.run_id, "worker/one", [made_up], await connect.server_ms(run.redis))

    _, text, _ = await said(run, "--run", run.name)

    assert "1 ?[2J" in text
    assert "\x1b" not in text


async def test_each_stream_and_each_group_is_told_with_what_was_refused(
    run: ScriptedRun, redis_reader: connect.Redis
) -> None:
    stream = await pending_votes(run, redis_reader)
    await put(run.redis, region_key(run.run_id, "eu", "telemetry"), b"1")
    now_ms = await connect.server_ms(run.redis)
    told = [
        Count("esper_messages_refused_total", {"stream": stream, "reason": reason}, number)
        for reason, number in (("bad_seal", 3.0), ("replayed", 2.0))
    ]
    repeats = Count("esper_messages_deduplicated_total", {"stream": region_key(run.run_id, "eu", "telemetry")}, 7.0)
    await counters.publish(run.redis, run.run_id, "regional/eu", [repeats], now_ms)
    junk = {"stream": key(run.run_id, "commands"), "reason": "malformed"}
    both = Count("esper_messages_refused_total", junk, 2.0)  # commands are read by all
    again = [
        Count("esper_entries_redelivered_total", {"stream": stream, "group": group}, number)
        for group, number in (("coordinator", 4.0), ("another", 9.0), ("coordinator", math.inf))
    ]
    await counters.publish(run.redis, run.run_id, "coordinator/one", [*told, both, *again], now_ms)
    await counters.publish(run.redis, run.run_id, "worker/one", [both, again[0]], now_ms)
    await run.redis.xadd(key(run.run_id, "commands"), {"m": b"junk"})
    await counters.publish(run.redis, run.run_id, "coordinator/gone", told, now_ms - counters.STALE_MS)
    await run.redis.hset(key(run.run_id, "counters"), "odd", b'{"at_ms": 1e9, "counts": 3}')

    _, out, _ = await said(run, "--run", run.name, "--json")
    _, text, _ = await said(run, "--run", run.name)
    rows = {row["stream"]: row for row in json.loads(out)["streams"]}

    assert rows["votes"]["refused"] == {"bad_seal": 3, "replayed": 2}
    assert rows["commands"]["refused"] == {"malformed": 2}
    assert (rows["votes"]["deduplicated"], rows["eu/telemetry"]["deduplicated"]) == (2, 7)
    [group] = rows["votes"]["groups"]
    assert {name: group[name] for name in ("lag", "pending", "max_deliveries", "redelivered")} == {
        **{"lag": 1, "pending": 2, "max_deliveries": 1, "redelivered": 8}
    }
    assert (group["active"], "1 active, 0 quiet, 8 redelivered" in text) == (1, True)
    assert "2 repeats, 3 bad_seal, 2 replayed" in text
    assert len(text.splitlines()) == 4


def test_its_lines_fit_a_terminal_of_80_columns_and_stand_below_one_another() -> None:
    read = Group("coordinator", 0, 2, 48.1, 1, 1, 0)
    idle = Group("worker-0", 1_234, 0, 0.0, 0, 0, 1)
    views = [StreamView("commands", 29, (read, idle)), StreamView("r0/telemetry", 2_048)]

    told = table([row(view, []) for view in views]).splitlines()

    assert told == [
        "stream        length  group         lag  pending    age  tries  consumers",
        "commands          29  coordinator     0        2  48.1s      1  1 active, 0 quiet",
        "                      worker-0     1234        0   0.0s      0  0 active, 1 quiet",
        "r0/telemetry    2048  -",
    ]


async def test_a_group_is_forgotten_only_once_nobody_reads_it(run: ScriptedRun, redis_reader: connect.Redis) -> None:
    stream = key(run.run_id, "commands")
    [entry] = await put(run.redis, stream, b"1")
    await run.redis.xgroup_create(stream, "worker-9", id=entry)

    dry = await said(run, "forget", "worker-9", "--run", run.name, "--dry-run")
    done = await said(run, "forget", "worker-9", "--run", run.name)
    again = await said(run, "forget", "worker-9", "--run", run.name)
    shared = await said(run, "forget", "coordinator", "--run", run.name)
    await drain(Inbox(redis_reader, run.redis, stream, "worker-8", "worker-8"))
    live = await said(run, "forget", "worker-8", "--run", run.name)
    misspelt = await said(run, "forget", "worker8", "--run", run.name)

    await run.beat(3, workers=("worker-1",))
    await run.redis.xgroup_create(stream, "worker-1", id=entry)
    heard = await said(run, "forget", "worker-1", "--run", run.name)

    assert (heard[0], heard[2].count("\n")) == (2, 1) and "gone quiet" in heard[2]
    assert dry == (0, f"would destroy worker-9 of commands: read up to {entry}, 0 pending\n", "")
    assert done == (0, f"destroyed worker-9 of commands: read up to {entry}, 0 pending\n", "")
    assert [(status, err.count("\n")) for status, _, err in (again, shared, live)] == [(2, 1)] * 3
    assert "one that has not read" in live[2]
    assert misspelt[2] == "esper: group is 'worker8'; expected that of a worker: worker-8 (near: 'worker-8')\n"
    assert again[2] == "esper: group is 'worker-9'; expected that of a worker: none\n"


async def test_a_worker_that_is_heard_keeps_its_groups_though_its_machines_clock_is_behind(run: ScriptedRun) -> None:
    stream = key(run.run_id, "commands")
    [entry] = await put(run.redis, stream, b"1")
    await run.redis.xgroup_create(stream, "worker-1", id=entry)
    beat = heartbeat(1)
    beat.time_ns = time.time_ns() - 3_600_000_000_000
    await run.say("heartbeats", Role.WORKER, "worker-1", beat)

    heard = await said(run, "forget", "worker-1", "--run", run.name)

    assert heard[0] == 2 and "gone quiet" in heard[2]


def upkeep(
    run: ScriptedRun, registry: CollectorRegistry, *inboxes: Inbox, retained: tuple[str, ...] = ()
) -> StreamUpkeep:
    return StreamUpkeep(
        *(run.run_id, "coordinator/one", run.redis, registry, inboxes, retained, StreamGauges(registry)),
        kept=Retention(3_600.0, 5),
        settled_ms=-1_000,
        idle_ms=0,
    )


async def test_a_process_trims_what_its_role_settles_and_bounds_what_is_only_looked_at(
    run: ScriptedRun, redis_reader: connect.Redis
) -> None:
    votes, dead, commands = (key(run.run_id, name) for name in ("votes", "dead", "commands"))
    inboxes = [Inbox(redis_reader, run.redis, stream, "coordinator", "c") for stream in (votes, commands)]
    for stream in (votes, dead, commands):
        await put(run.redis, stream, *[b"1"] * 20)
    for inbox in inboxes:
        ids = [delivery.entry_id for delivery in await drain(inbox)]
        await run.redis.xack(inbox.source.stream, "coordinator", *ids[:15])
    await run.redis.xgroup_createconsumer(votes, "coordinator", "gone")

    await upkeep(run, CollectorRegistry(), *inboxes, retained=(dead,)).look()

    assert [await run.redis.xlen(stream) for stream in (votes, dead, commands)] == [5, 5, 20]
    [consumer] = await run.redis.xinfo_consumers(votes, "coordinator")
    assert consumer["name"] == b"c"


async def test_a_stream_that_grows_too_long_keeps_nothing_that_is_settled(
    run: ScriptedRun, redis_reader: connect.Redis
) -> None:
    votes = key(run.run_id, "votes")
    inbox = Inbox(redis_reader, run.redis, votes, "coordinator", "c")
    await put(run.redis, votes, *[b"1"] * 20)
    ids = [delivery.entry_id for delivery in await drain(inbox)]
    await run.redis.xack(votes, "coordinator", *ids[:15])
    keeper = StreamUpkeep(run.run_id, "coordinator/one", run.redis, CollectorRegistry(), [inbox], most_settled=20)

    await keeper.shorten()
    before = await run.redis.xlen(votes)
    await put(run.redis, votes, b"1")
    await keeper.shorten()

    assert (before, await run.redis.xlen(votes)) == (20, 6)


async def test_what_a_process_counts_can_be_read_by_others_and_streams_are_gauges(
    run: ScriptedRun, redis_reader: connect.Redis
) -> None:
    await pending_votes(run, redis_reader)
    registry = CollectorRegistry()
    Counter("esper_messages_refused", "x", ("stream", "reason"), registry=registry).labels("s", "stale").inc(4)
    Counter("other", "x", registry=registry).inc()
    registry.register(Repeats({"t": lambda: 2}))

    await upkeep(run, registry).look()
    read = await counters.read(run.redis, run.run_id, await connect.server_ms(run.redis))

    assert read == {"coordinator/one": counts_of(registry)}
    assert {(count.name, count.value) for count in read["coordinator/one"]} == {
        ("esper_messages_refused_total", 4.0),
        ("esper_messages_deduplicated_total", 2.0),
    }
    shown = {"stream": "votes", "group": "coordinator"}
    assert registry.get_sample_value("esper_stream_lag_entries", shown) == 1.0
    assert registry.get_sample_value("esper_stream_pending_entries", shown) == 2.0
    assert registry.get_sample_value("esper_stream_length_entries", {"stream": "votes"}) == 3.0


async def test_what_processes_said_that_are_long_gone_is_forgotten(run: ScriptedRun) -> None:
    now_ms = await connect.server_ms(run.redis)
    await counters.publish(run.redis, run.run_id, "gone", [], now_ms - counters.FORGOTTEN_MS - 1)
    await counters.publish(run.redis, run.run_id, "here", [], now_ms)

    assert await counters.forget_gone(run.redis, run.run_id, now_ms) == 1
    assert await counters.read(run.redis, run.run_id, now_ms) == {"here": []}
