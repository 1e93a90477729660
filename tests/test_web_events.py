"""What browsers are told: everything once, then what changes; who is slow is let go, who comes back goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from esper.web.feed import Feed, Subscriber
from esper.web.stream import EventStream
from tests.web_kit import Wire, events, http

WHOLE = {"whole": "of it"}


def feed(most_waiting: int = 32) -> Feed:
    return Feed(lambda: WHOLE, most_waiting)


async def told(*subscribers: Subscriber) -> list[list[tuple[str, str, Any]]]:
    """The events of each, up to its end."""
    return [events(b"".join([frame async for frame in each.frames()])) for each in subscribers]


async def left(of: Feed, subscriber: Subscriber) -> list[tuple[str, str, Any]]:
    """What it was told until it left."""
    of.leave(subscriber)
    subscriber.finish()
    [found] = await told(subscriber)
    return found


def said(found: list[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
    return [(name, content) for _, name, content in found]


async def test_a_browser_is_told_everything_then_what_changes() -> None:
    of = feed()
    subscriber = of.subscribe()
    of.publish({"step": 1})
    of.publish({"name": "two\nlines, \r and \u2028 one more"})
    of.end()

    [found] = await told(subscriber)

    assert said(found) == [
        ("snapshot", WHOLE),
        ("change", {"step": 1}),
        ("change", {"name": "two\nlines, \r and \u2028 one more"}),
    ]
    assert len({event_id for event_id, _, _ in found}) == 3


async def test_one_that_comes_back_is_told_what_it_missed() -> None:
    of = feed()
    first = of.subscribe()
    for step in range(4):
        of.publish({"step": step})
    before = await left(of, first)
    again = of.subscribe(before[2][0])  # it had the second change
    of.end()

    [after] = await told(again)

    assert said(after) == [("change", {"step": 2}), ("change", {"step": 3})]


async def test_one_that_was_away_for_half_a_minute_is_told_each_change() -> None:
    of = feed()
    [(known, _, _)] = await left(of, of.subscribe())
    for step in range(120):  # four a second
        of.publish({"step": step})
    again = of.subscribe(known)
    of.end()

    [after] = await told(again)

    assert said(after) == [("change", {"step": step}) for step in range(120)]


async def test_one_that_was_away_for_too_long_or_knows_another_server_is_told_everything() -> None:
    of, other = feed(), feed()
    stranger = other.subscribe()
    other.end()
    [[(foreign, _, _)]] = await told(stranger)
    [(first, _, _)] = await left(of, of.subscribe())
    for step in range(200):
        of.publish({"step": step})
    back = [of.subscribe(each) for each in (first, foreign, "nonsense", f"{first}0", first + "0" * 5_000, "")]
    of.end()

    assert [said(found) for found in await told(*back)] == [[("snapshot", WHOLE)]] * 6


async def test_one_that_missed_more_than_a_megabyte_is_told_everything() -> None:
    of = feed()
    [(known, _, _)] = await left(of, of.subscribe())
    sizes = []
    for step in range(3):
        of.publish({"step": step, "seeds": "s" * 400_000})
        sizes.append([name for _, name, _ in await left(of, of.subscribe(known))])

    assert sizes == [["change"], ["change", "change"], ["snapshot"]]


async def test_many_browsers_share_one_snapshot() -> None:
    asked = []
    of = Feed(lambda: asked.append(1) or WHOLE)  # type: ignore[func-returns-value]
    subscribers = [of.subscribe() for _ in range(50)]
    of.publish({"step": 1})
    late = of.subscribe()
    of.end()

    found = await told(*subscribers, late)

    assert len(asked) == 2
    assert [said(each) for each in found] == [[("snapshot", WHOLE), ("change", {"step": 1})]] * 50 + [
        [("snapshot", WHOLE)]
    ]


async def test_a_slow_browser_is_let_go_and_holds_up_nobody() -> None:
    of = feed(most_waiting=4)
    slow, quick = of.subscribe(), of.subscribe()
    reading = quick.frames()
    got = [await anext(reading)]
    for step in range(6):
        of.publish({"step": step})
        got.append(await anext(reading))

    assert slow.gone and of.subscribers == {quick}
    assert await told(slow) == [[]]
    assert said(events(b"".join(got))) == [("snapshot", WHOLE), *(("change", {"step": step}) for step in range(6))]


async def test_the_answer_is_an_event_stream_that_ends_with_the_server() -> None:
    of, wire = feed(), Wire()
    serving = asyncio.create_task(EventStream(of, "")(http("/events"), wire.stays, wire.send))
    await wire.spoken.wait()
    of.publish({"step": 1})
    of.keep_alive()
    of.end()
    await serving

    assert wire.start["status"] == 200
    assert dict(wire.start["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert said(events(wire.body)) == [("snapshot", WHOLE), ("change", {"step": 1})]
    assert wire.body.startswith(b"retry: ") and b"\n: here\n\n" in wire.body and wire.is_over
    assert not of.subscribers


async def test_a_browser_that_hangs_up_or_takes_nothing_more_is_forgotten() -> None:
    of = feed()
    gone, stuck = Wire(), Wire(stalls=True)

    await EventStream(of, "")(http("/events"), gone.leaves, gone.send)
    await EventStream(of, "", send_s=0.01)(http("/events"), stuck.stays, stuck.send)

    assert not of.subscribers and not stuck.is_over
