"""An answer is waited for as long as was said: no longer, and not less where this process itself was held up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeAlias, TypeVarTuple

import pytest

from esper.bus.client import deadline
from esper.bus.client.deadline import Limit, Watch, in_time
from esper.bus.connect import Redis, writer
from esper.bus.drive import drive
from esper.bus.faults import LostError
from esper.bus.protocol import Ask, Steps

ID = ("CLIENT", "ID")
BRIEF_S = 0.4
Ts = TypeVarTuple("Ts")
Runner: TypeAlias = Callable[[Callable[["Told"], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[2, 3])
async def brief(redis_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    """A client that waits for 0.4 s; RESP3 goes the library's way."""
    async with writer(f"{redis_url}?protocol={request.param}") as client:
        await client.ask(("PING",))
        client.deadline_s = BRIEF_S
        yield client


@pytest.fixture
def last_look_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still for seconds is no failure."""
    monkeypatch.setattr(deadline, "LAST_LOOK_S", 60.0)


async def test_a_command_that_is_not_answered_in_time_is_given_up(brief: Redis) -> None:
    brief.deadline_s = None
    before = await brief.ask(ID)
    brief.deadline_s, began = BRIEF_S, time.monotonic()

    with pytest.raises(LostError, match="no answer in time"):
        await brief.ask(("BLPOP", "nothing-here", "9"))  # before the ten of the PING are over

    assert time.monotonic() - began >= BRIEF_S
    brief.deadline_s = None
    assert await brief.ask(ID) != before


async def test_a_read_is_given_up_by_a_time_of_its_own_where_the_client_has_none(
    brief: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esper.bus.drive.MARGIN_S", BRIEF_S)
    brief.deadline_s, began = None, time.monotonic()

    with pytest.raises(LostError, match="no answer in time"):
        await drive(one_read(), brief, brief, asyncio.Event())

    assert time.monotonic() - began >= BRIEF_S


def one_read() -> Steps[Any]:
    """Which blocks for longer than it says."""
    return (yield Ask(("BLPOP", "nothing-here", "9"), 1))


async def test_each_command_has_the_whole_time_for_itself(brief: Redis) -> None:
    for _ in range(5):  # each waits beyond the end of the time of the one before, and a last look behind that
        began = time.monotonic()
        try:
            assert await brief.ask(("BLPOP", "nothing-here", "0.3")) is None
        except LostError:  # of a server that stood still
            assert time.monotonic() - began >= BRIEF_S


async def test_one_that_began_before_the_time_of_another_was_over_is_given_up_too(brief: Redis) -> None:
    with suppress(LostError):  # of a server that stood still
        await brief.ask(("BLPOP", "nothing-here", "0.24"))

    with pytest.raises(LostError, match="no answer in time"):
        await brief.ask(("BLPOP", "nothing-here", "9"))  # before the ten of the PING are over


@pytest.mark.usefixtures("last_look_is_long")
@pytest.mark.parametrize("turns", range(1, 9))
async def test_an_answer_that_came_while_this_process_was_held_up_is_taken(brief: Redis, turns: int) -> None:
    brief.deadline_s = 0.05
    asked = asyncio.create_task(brief.ask(("PING",)))
    for _ in range(turns):  # after some of them the command has left, and its answer has not been looked at
        await asyncio.sleep(0)

    hold_up(0.1)

    assert await asked == b"PONG"


@pytest.mark.usefixtures("last_look_is_long")
async def test_an_answer_of_which_only_the_beginning_had_come_is_taken_too(brief: Redis, run_id: str) -> None:
    large = bytes(4 << 20)  # more than a socket holds
    brief.deadline_s = None
    await brief.ask(("SET", run_id, large))
    brief.deadline_s = 0.05
    asked = asyncio.create_task(brief.ask(("GET", run_id)))
    for _ in range(3):  # by then the command has left
        await asyncio.sleep(0)

    hold_up(0.1)

    assert await asked == large


def hold_up(seconds: float) -> None:
    """As a long handler would, or a signal."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


class Told(asyncio.SelectorEventLoop):
    """Its clock stands still until it is set."""

    now_s = 100.0

    def time(self) -> float:
        """As it was set last."""
        return self.now_s

    async def go_on(self, seconds: float) -> None:
        """Set it; who was due by then has had some turns."""
        self.now_s += seconds
        for _ in range(4):
            await asyncio.sleep(0)


@pytest.fixture
def told() -> Iterator[Runner]:
    """Runs what is to happen by a clock that only it sets."""
    with asyncio.Runner(loop_factory=Told) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Told)
        yield lambda story: runner.run(story(loop))


@pytest.mark.parametrize(("away_s", "made_up_s"), [(0.06, 0.1), (0.35, 0.3), (60.0, 1.0)])
def test_after_a_machine_stood_still_the_server_has_as_long_to_answer_up_to_a_second(
    told: Runner, away_s: float, made_up_s: float
) -> None:
    async def story(loop: Told) -> None:
        watch, watched, limited = Watch(loop), loop.create_future(), loop.create_future()
        watch.begin(watched, loop.time() + 0.05)
        waiting = asyncio.create_task(in_time(0.05, limited))
        await asyncio.sleep(0)

        await loop.go_on(away_s)
        await loop.go_on(made_up_s - 0.01)
        assert not (watched.done() or waiting.done())
        await loop.go_on(0.02)

        for given_up in (watched, waiting):
            with pytest.raises(TimeoutError):
                given_up.result()

    told(story)


def test_a_younger_wait_has_the_whole_of_its_time_and_no_more(told: Runner) -> None:
    """One timer serves both: it wakes for the first, which was answered, and goes back to sleep for the second."""

    async def story(loop: Told) -> None:
        watch, answered, waiter = Watch(loop), loop.create_future(), loop.create_future()
        watch.begin(answered, loop.time() + 0.5)
        answered.set_result("PONG")
        watch.done()

        await loop.go_on(0.25)
        watch.begin(waiter, loop.time() + 0.5)
        for _ in range(2):  # at the end of the first one's time, and of a last look behind that
            await loop.go_on(0.25)
            assert not waiter.done()
        for _ in range(2):
            await loop.go_on(0.125)

        assert waiter.done() and isinstance(waiter.exception(), TimeoutError)

    told(story)


def test_an_answer_that_is_there_as_the_last_look_ends_is_taken(told: Runner) -> None:
    async def story(loop: Told) -> None:
        limited = loop.create_future()
        waiting = asyncio.create_task(in_time(0.05, limited))
        await loop.go_on(0.0)
        await loop.go_on(0.06)

        loop.call_at(loop.time(), limited.set_result, "PONG")
        await loop.go_on(1.0)  # held up again: both are met in one turn of the loop

        assert waiting.result() == "PONG"

    told(story)


async def test_a_cancellation_as_the_time_runs_out_stays_one() -> None:
    loop = asyncio.get_running_loop()
    watch, waiter = Watch(loop), loop.create_future()
    waiting = asyncio.ensure_future(awaited(waiter))
    await asyncio.sleep(0)

    watch.begin(waiter, loop.time() - 1)
    while not waiter.done():
        await asyncio.sleep(0)
    waiting.cancel()  # before it has heard of it

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert isinstance(waiter.exception(), TimeoutError)


async def awaited(waiter: asyncio.Future[Any]) -> Any:
    return await waiter


def test_many_commands_need_one_timer_which_a_closed_connection_takes_along(redis_url: str) -> None:
    [timer] = [timer for whose, timer in timers_of(redis_url) if isinstance(whose, Watch)]

    assert timer.cancelled()


def test_over_the_librarys_way_a_command_needs_one_timer_and_so_does_the_goodbye(redis_url: str) -> None:
    limits = [timer for whose, timer in timers_of(f"{redis_url}?protocol=3") if isinstance(whose, Limit)]

    assert len(limits) == 100 + 1


def timers_of(url: str) -> list[tuple[object, asyncio.TimerHandle]]:
    """Of a hundred commands over one connection, which is then closed."""
    with asyncio.Runner(loop_factory=Noting) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Noting)
        runner.run(asked_often(url))
        return loop.timers


class Noting(asyncio.SelectorEventLoop):
    """Keeps every timer that it is asked for, and who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[tuple[object, asyncio.TimerHandle]] = []

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As any loop."""
        timer = super().call_at(when, callback, *args, context=context)
        self.timers.append((getattr(callback, "__self__", None), timer))
        return timer


async def asked_often(url: str) -> None:
    """A hundred commands over one connection, which is then closed."""
    async with writer(url) as client:
        for _ in range(100):
            await client.ask(("PING",))
    await asyncio.sleep(0)  # for the transport to say so


@pytest.mark.usefixtures("last_look_is_long")
@pytest.mark.parametrize("turns", range(1, 9))
async def test_an_answer_that_came_while_this_process_was_held_up_is_not_given_up(redis: Redis, turns: int) -> None:
    await redis.ask(("PING",))
    asked = asyncio.create_task(in_time(0.05, redis.ask(("PING",))))
    for _ in range(turns):  # after some of them the command has left, and its answer has not been looked at
        await asyncio.sleep(0)

    hold_up(0.1)

    assert await asked == b"PONG"


async def test_an_answer_that_does_not_come_is_given_up_in_time(redis: Redis) -> None:
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        await in_time(0.05, asyncio.Event().wait())

    assert time.monotonic() - began >= 0.05


async def test_who_is_cancelled_as_the_time_runs_out_stays_cancelled() -> None:
    ends = asyncio.Event()

    async def cut() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()
            waiting.cancel()

    waiting = asyncio.create_task(in_time(0.01, cut()))
    await ends.wait()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_one_that_outlived_a_deadline_can_be_waited_with_again() -> None:
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await in_time(0.01, asyncio.Event().wait())

    this = asyncio.current_task()
    assert this is not None and this.cancelling() == 0
