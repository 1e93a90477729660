"""Of several coordinators one leads; another takes over when it falls silent, and what it says later is void."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from esper.bus import names
from esper.bus.connect import Redis, ServerClock, writer
from esper.bus.drive import drive
from esper.bus.faults import ForbiddenError
from esper.bus.group.consumer import SWEEP_AGAIN_S, Consumer, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.pending import Source
from esper.bus.protocol import Surroundings
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.leyline.succession import Decision, Said, Succession, in_force
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.recall import Recaller
from esper.runtime.coordinator.lease import Standby
from esper.runtime.coordinator.loop import CoordinatorLoop
from esper.runtime.serving.windows import ReplacedError
from tests.bus_kit import drain, num_pending
from tests.clocks import Clock
from tests.coordinator_kit import Run, abort, commit, leads, proposal, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]
LEASE_S = 3.0
WAITED_S = 60.0
Read: TypeAlias = Callable[[], Awaitable[list[Delivery]]]


def standby(run: Run, clock: Clock) -> Standby:
    return Standby(run.redis, names.key(run.run_id, "windows:coordinator"), LEASE_S, clock)


async def test_one_who_finds_no_leader_need_not_wait(run: Run) -> None:
    assert await standby(run, Clock()).until_free(asyncio.Event())


async def test_a_leader_that_renews_its_lease_keeps_it_and_a_silent_one_loses_it(run: Run) -> None:
    leader, clock = await run.coordinator(), Clock()
    watching = standby(run, clock)

    first = await watching.is_free()
    clock.now_s = 2.9
    await leader.step([])  # its first step is due to show that it is there
    renewed = await watching.is_free()
    clock.now_s = 5.8
    silent = await watching.is_free()
    clock.now_s = 5.9

    assert (first, renewed, silent, await watching.is_free()) == (False, False, False, True)


async def test_a_leader_whose_history_is_lost_has_a_lease_to_claim_it_again(run: Run) -> None:
    leader, clock = await run.coordinator(), Clock()
    watching = standby(run, clock)

    first = await watching.is_free()
    clock.now_s = 1.0
    await run.redis.delete(names.key(run.run_id, "windows:coordinator"))
    lost = await watching.is_free()
    clock.now_s = 3.9
    await leader.step([])
    claimed = await watching.is_free()
    clock.now_s = 6.8
    await run.redis.delete(names.key(run.run_id, "windows:coordinator"))
    lost_again = await watching.is_free()
    clock.now_s = 9.8

    assert (first, lost, claimed, lost_again, await watching.is_free()) == (False, False, False, False, True)


async def test_of_two_that_find_no_leader_at_once_one_leads_and_the_other_stands_by(run: Run) -> None:
    first, second = standby(run, Clock()), standby(run, Clock())
    looked = [await each.is_free() for each in (first, second)]

    claimed = [await each.claim() for each in (first, second)]
    leader = await run.coordinator()
    await leader.step([])

    assert (looked, claimed) == ([True, True], [True, False])
    assert not await second.is_free()
    assert await announced(run) == [leader._token]


@pytest.mark.parametrize("may", ["+ping", "+@read"], ids=["nothing", "look"])
async def test_who_may_not_lead_does_not_stand_by_for_ever(run: Run, may: str) -> None:
    """A server that is away is another matter."""
    user = f"user-{run.run_id}"
    await run.redis.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "+@connection", may)
    sign = "&" if "?" in run.redis.url else "?"

    async with writer(f"{run.redis.url}{sign}username={user}&password=secret") as redis:
        watching = Standby(redis, names.key(run.run_id, "windows:coordinator"), LEASE_S)
        with pytest.raises(ForbiddenError):
            await asyncio.wait_for(watching.until_free(asyncio.Event()), WAITED_S)
    await run.redis.execute_command("ACL", "DELUSER", user)


async def test_one_that_stands_by_can_be_stopped(run: Run) -> None:
    await run.coordinator()
    stopping, watching = asyncio.Event(), standby(run, Clock())
    waiting = asyncio.create_task(watching.until_free(stopping))

    stopping.set()

    assert not await waiting


async def test_a_leader_that_ends_in_order_is_followed_at_once(run: Run) -> None:
    leader, stopping = await run.coordinator(), asyncio.Event()
    stopping.set()
    await leader.serve(stopping)

    assert await standby(run, Clock()).is_free()


async def announced(run: Run) -> list[int]:
    said = await run.said("decisions", Domain.DECISION)
    return [each.lease_token for each in said if isinstance(each, pb.LeaderAnnouncement)]


async def decided_by(run: Run) -> list[int]:
    return [each.lease_token for each in await run.said("decisions", Domain.DECISION) if isinstance(each, Decision)]


async def test_each_leader_announces_itself_under_a_higher_token_and_stamps_what_it_says(run: Run) -> None:
    for _ in range(2):
        leader: CoordinatorLoop = await run.coordinator()
        await run.put("heartbeats", heartbeat(0), heartbeat(1))
        await run.put("commands", germinate())
        await step_until_idle(leader)

    first, second = await announced(run)
    assert first < second
    assert await decided_by(run) == [first, second, second]  # a proposal; its abort and the next proposal


RECORD: list[Said] = [leads(5), proposal(1, 5), leads(8), commit(1, 5), abort(1, 8), commit(1, 8), proposal(2, 8)]
"""The first leader commits after the second has announced itself, and the second decides twice."""


def test_a_new_leader_goes_by_what_leaders_of_their_time_have_decided_first() -> None:
    succession = Succession()

    assert list(in_force(RECORD, succession)) == [RECORD[1], RECORD[4], RECORD[6]]
    assert (succession.next_token(3), succession.next_token(1_000)) == (9, 1_000)


def test_a_worker_obeys_no_leader_that_was_replaced() -> None:
    orders, told = Orders(), list[str | None]()

    for number, said in enumerate(RECORD):
        delivery = Delivery("decisions", "w", f"{number + 1}-0", b"", 1, "w")
        match said:
            case pb.LeaderAnnouncement():
                step = orders.on_announcement(said, delivery)
            case pb.BarrierProposal():
                step = orders.on_proposal(said, delivery)
            case pb.BarrierCommit():
                step = orders.on_commit(said, delivery)
            case pb.BarrierAbort():
                step = orders.on_abort(said, delivery)
        told += [message.WhichOneof("message") for message in step[0]]

    assert told == ["proposal", "abort", "proposal"]


async def test_a_resumed_rank_recalls_nothing_of_a_leader_that_was_replaced_before_its_checkpoint(run: Run) -> None:
    sealer = Sealer(run.master.derive(run.run_id, [Role.COORDINATOR]), Role.COORDINATOR, "coordinator")
    at = [
        await run.put_bytes("decisions", sealer.seal(said, roster_generation=1))
        for said in (leads(5), leads(8), proposal(1, 8), commit(1, 8), commit(2, 5, step=20), commit(2, 8, step=30))
    ]
    keys, clock = run.master.derive(run.run_id, [Role.WORKER]), ServerClock()
    await clock.look(run.redis)
    openers = {"decisions": Opener(keys, name="w", guard=None, accept=[Domain.DECISION], carries_out=True)}
    recaller = Recaller(run.redis, run.run_id, "w", openers, clock)

    found = await recaller.recall(pb.Recall(after=at[3], roster_generation=1), entry_order(at[-1]))

    assert [(order.commit.round, order.commit.effective_step) for order in found] == [(2, 30)]


async def test_what_a_replaced_leader_has_read_meanwhile_comes_to_the_new_one(
    run: Run, redis: Redis, redis_reader: Redis
) -> None:
    source, clock, never = Source(f"{run.run_id}:votes", "coordinator", "coordinator"), Clock(), asyncio.Event()
    reads = [Consumer(source, Pace(sweep_every_s=1.0), Surroundings(clock)) for _ in range(2)]

    async def read(consumer: Consumer) -> list[bytes]:
        return [each.body for each in await drive(consumer.next_batch(wait=False), redis_reader, redis, never)]

    for _ in SWEEP_AGAIN_S:  # what an earlier incarnation may have been sent late is looked for at the start
        clock.now_s += 1.5
        await read(reads[1])
    await read(reads[0])
    await redis.execute_command("XADD", source.stream, "*", "m", b"vote")
    stolen = await read(reads[0])
    before = await read(reads[1])
    clock.now_s += 1.0

    assert (stolen, before, await read(reads[1])) == ([b"vote"], [], [b"vote"])


async def test_a_command_that_a_replaced_leader_has_read_is_judged_before_those_that_came_later(run: Run) -> None:
    replaced, leader = await run.coordinator(), await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(leader)
    [first] = await run.put("commands", germinate())
    [read_too_late] = await drain(replaced.inboxes["commands"])
    [second] = await run.put("commands", germinate("s1", site="hidden"))

    await step_until_idle(leader)
    log = names.key(run.run_id, "commands")
    counted = await run.redis.ask(("XPENDING", log, "coordinator", "-", "+", "9"))
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(leader)

    assert read_too_late.entry_id == first
    assert [(entry.decode(), tries) for entry, _, _, tries in counted] == [(first, 1), (second, 1)]
    assert await run.decisions() == ["Proposal 1", "Commit 1"]
    assert await run.receipts() == [("s0-1", first, "NONE"), ("s1-1", second, "NONE")]
    assert await num_pending(run.redis, log, "coordinator") == 0
    with pytest.raises(ReplacedError):
        await replaced.step([read_too_late])


@pytest.fixture
def readers(run: Run, redis: Redis, redis_reader: Redis) -> list[Read]:
    """Two processes of one name; no time passes, so that none looks at the pending list again by itself."""
    source, clock = Source(names.key(run.run_id, "commands"), "coordinator", "coordinator"), Clock()

    async def read(consumer: Consumer) -> list[Delivery]:
        return await drive(consumer.next_batch(wait=False), redis_reader, redis, asyncio.Event())

    pace = Pace(count=3, sweep_every_s=1.0, in_order=True)
    return [partial(read, Consumer(source, pace, Surroundings(clock))) for _ in range(2)]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_a_replaced_leader_reads_the_new_one_has_each_entry_once_and_in_order(
    run: Run, readers: list[Read], seed: int
) -> None:
    chance, added, found = random.Random(seed), list[bytes](), list[bytes]()
    replaced, leader = readers
    await leader()

    for _ in range(60):
        match chance.choice(["add", "add", "steal", "read"]):
            case "add":
                added.append(b"%d" % len(added))
                await run.put_bytes("commands", added[-1])
            case "steal":
                await replaced()
            case "read":
                found += [each.body for each in await leader()]
    await replaced()
    added.append(b"last")
    await run.put_bytes("commands", added[-1])
    while batch := await leader():
        found += [each.body for each in batch]

    assert found == added


async def test_where_no_other_leader_reads_each_entry_is_handed_over_once(run: Run, readers: list[Read]) -> None:
    _, leader = readers

    read = []
    for body in (b"1", b"2", b"3"):
        await run.put_bytes("commands", body)
        read += await leader()

    assert [(each.body, each.attempts) for each in read] == [(b"1", 1), (b"2", 1), (b"3", 1)]
