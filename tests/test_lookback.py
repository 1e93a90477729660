"""Junk and copies behind what a leader has said hide nothing of it, from a runtime or a coordinator that begins."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from esper.bus import names, tail
from esper.bus.connect import ServerClock
from esper.bus.group.delivery import Delivery
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer
from esper.leyline.succession import Decision, Said
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.recall import NUM_BEFORE, Recaller
from esper.runtime.coordinator import lookback
from esper.runtime.coordinator.lookback import newest_said
from esper.runtime.coordinator.loop import NUM_DECISIONS
from esper.runtime.serving.clock_skew import DatedOpener
from tests.coordinator_kit import Run, abort, commit, leads, proposal, run, step_until_idle
from tests.rounds import germinate, heartbeat

__all__ = ["run"]

MINUTE_MS, MS_NS = 60_000, 1_000_000


def sealed(run: Run, *messages: Said) -> list[bytes]:
    sealer = Sealer(run.master.derive(run.run_id, [Role.COORDINATOR]), Role.COORDINATOR, "coordinator")
    return [sealer.seal(message, roster_generation=1) for message in messages]


async def put(run: Run, *bodies: bytes) -> list[str]:
    async with run.redis.pipeline(transaction=False) as sent:
        for body in bodies:
            sent.execute_command("XADD", names.key(run.run_id, "decisions"), "*", "m", body)
        return [entry_id.decode() for entry_id in await sent.execute()]


async def put_at(run: Run, at_ms: int, *bodies: bytes) -> str:
    """The last one's id."""
    async with run.redis.pipeline(transaction=False) as sent:
        for number, body in enumerate(bodies):
            sent.execute_command("XADD", names.key(run.run_id, "decisions"), f"{at_ms}-{number}", "m", body)
        entry_ids: list[bytes] = await sent.execute()
    return entry_ids[-1].decode()


def junk(num: int) -> list[bytes]:
    return [b"junk %d" % number for number in range(num)]


async def a_recaller(run: Run) -> Recaller:
    keys, clock = run.master.derive(run.run_id, [Role.WORKER]), ServerClock()
    await clock.look(run.redis)
    opener = Opener(keys, name="w", guard=None, accept=[Domain.DECISION], carries_out=True)
    return Recaller(run.redis, run.run_id, "w", {"decisions": opener}, clock)


async def on_record(run: Run, num: int = 100) -> list[tuple[str, Said]]:
    recaller = await a_recaller(run)

    def read(body: bytes, at: str) -> Opened:
        return recaller.openers["decisions"].open(body, at, recaller.clock.now_ms())

    return await newest_said(run.redis, names.key(run.run_id, "decisions"), read, num)


@pytest.mark.parametrize("num", [0, NUM_BEFORE, 1000])
async def test_a_runtime_that_begins_behind_junk_obeys_no_leader_that_was_replaced(run: Run, num: int) -> None:
    late = commit(2, 5)
    at = await put(run, *sealed(run, leads(5), leads(8), proposal(1, 8)), *junk(num), *sealed(run, late))
    orders, delivery = Orders(past=entry_order(at[0]), worker="w"), Delivery("decisions", "w", at[-1], b"", 1, "w")

    with capture_logs() as told:
        await (await a_recaller(run)).take_up(orders, at[-1], at[-1])

    assert not orders.is_past(late, delivery)
    assert orders.on_commit(late, delivery) == ([], [delivery])
    assert [each["num"] for each in told] == [num] * bool(num)


async def test_junk_between_decisions_is_told_of_in_one_line_where_a_rank_resumes(run: Run) -> None:
    at = await put(run, *sealed(run, leads(8), proposal(1, 8)), *junk(300), *sealed(run, commit(1, 8)), *junk(300))

    with capture_logs() as told:
        found = await (await a_recaller(run)).recall(pb.Recall(after=at[0], roster_generation=1), entry_order(at[-1]))

    assert [order.commit.round for order in found] == [1]
    assert [(each["event"], each["num"]) for each in told] == [("entries.passed_over", 600)]


async def test_a_rank_that_resumes_leaves_out_a_command_that_redis_has_lost_and_what_was_decided_behind_it(
    run: Run,
) -> None:
    """Whichever rank it is, as none finds it: also one that had read it before it ended."""
    lost = pb.CommittedCommand(stream="commands", entry_id="5-0", command_id="s0-1", envelope_digest=bytes(32))
    named = commit(2, 8)
    named.commands.append(lost)
    named.digest = barrier_digest(named.effective_step, [lost], [])
    said: list[Said] = [leads(8), proposal(1, 8), commit(1, 8), proposal(2, 8), named, proposal(3, 8), commit(3, 8)]
    at = await put(run, *sealed(run, *said))

    with capture_logs() as told:
        found = await (await a_recaller(run)).recall(pb.Recall(after=at[0], roster_generation=1), entry_order(at[-1]))

    assert [order.commit.round for order in found] == [1]
    assert [(each["event"], each["num"]) for each in told] == [("decisions.not_recalled", 2)]  # both commits


async def test_a_rank_that_resumes_leaves_out_what_bound_the_trainer_of_its_checkpoint_to_nothing(run: Run) -> None:
    """It began behind that proposal, on which the one before it had voted, and was gone before the next round."""
    said: list[Said] = [leads(8), proposal(1, 8), commit(1, 8), proposal(2, 8), commit(2, 8)]
    at = await put(run, *sealed(run, *said))

    found = await (await a_recaller(run)).recall(pb.Recall(after=at[1]), entry_order(at[-1]))

    assert [order.commit.round for order in found] == [2]


async def test_a_coordinator_that_begins_behind_junk_goes_on_where_the_one_before_it_ended(run: Run) -> None:
    leader = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(leader)
    await put(run, *junk(2 * NUM_DECISIONS))

    with capture_logs() as told:
        await run.coordinator()

    rounds = [(type(each).__name__, each.round) for _, each in await on_record(run) if isinstance(each, Decision)]
    assert rounds == [("BarrierProposal", 1), ("BarrierAbort", 1)]
    assert [each["num"] for each in told if each["event"] == "entries.passed_over"] == [2 * NUM_DECISIONS]


async def test_copies_of_what_was_said_count_once(run: Run) -> None:
    record = sealed(run, leads(5), abort(1, 5), leads(8), proposal(2, 8))
    at = await put(run, *record, *record[:2] * NUM_BEFORE)

    few, all_there_is = await on_record(run, len(record)), await on_record(run)

    assert sorted(each.lease_token for _, each in few) == [5, 5, 8, 8]
    assert [(each_at, each.lease_token) for each_at, each in all_there_is] == list(
        zip(at[:4], (5, 5, 8, 8), strict=True)
    )


@pytest.mark.parametrize("copies", [slice(1, 2), slice(0, NUM_DECISIONS)], ids=["one", "many"])
async def test_a_coordinator_that_begins_believes_no_copies_ahead_of_the_clock_of_what_was_said_long_ago(
    run: Run, copies: slice
) -> None:
    now_ms = time.time_ns() // MS_NS
    long_ago_ms, num = now_ms - 10 * MINUTE_MS, NUM_DECISIONS // 2 + 1
    keys = run.master.derive(run.run_id, [Role.COORDINATOR])
    sealer = Sealer(keys, Role.COORDINATOR, "coordinator", clock_ns=lambda: long_ago_ms * MS_NS)
    rounds = [decision(number, 8) for number in range(1, num + 1) for decision in (proposal, commit)]
    record = [sealer.seal(each, roster_generation=1) for each in (leads(8), *rounds)]
    await put_at(run, long_ago_ms, *record)
    captured = await put_at(run, now_ms + 60 * MINUTE_MS, *record[copies])

    coordinator = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinator)

    said = await tail.read_after(run.redis, names.key(run.run_id, "decisions"), captured, waits=False)
    opener = Opener(keys, guard=None, accept=[Domain.DECISION])
    messages = [opener.open(body, at, now_ms).message for at, body in map(tail.message, said)]
    rounds_said = [(type(each).__name__, each.round) for each in messages if isinstance(each, Decision)]
    assert (len(messages), rounds_said) == (2, [("BarrierProposal", num + 1)])


@pytest.mark.parametrize(("num", "rounds"), [(2, [5, 6]), (100, [1, 2, 3, 4, 5, 6])])
async def test_nor_of_what_was_said_while_ids_stood_still_which_is_on_record_itself(
    run: Run, num: int, rounds: list[int]
) -> None:
    """As the clock was set back by an hour: entries count on within the last millisecond before."""
    keys, clock = run.master.derive(run.run_id, [Role.COORDINATOR]), ServerClock()
    await clock.look(run.redis)
    now_ms = clock.now_ms()
    before_ms = now_ms + 60 * MINUTE_MS
    times_ms = [before_ms] * 3 + [now_ms - 5 * MINUTE_MS] * 3
    sealer = Sealer(keys, Role.COORDINATOR, "coordinator", clock_ns=lambda: times_ms.pop(0) * MS_NS)
    record = [sealer.seal(abort(number, 8)) for number in range(1, 7)]
    await put_at(run, before_ms, *record)
    await put_at(run, before_ms + 1, *record[3:5])
    opener = DatedOpener(keys, clock, guard=None, accept=[Domain.DECISION], carries_out=True)

    stream = names.key(run.run_id, "decisions")
    said = await newest_said(run.redis, stream, lambda body, at: opener.open(body, at, now_ms), num)

    assert [each.round for _, each in said if isinstance(each, Decision)] == rounds


async def test_only_so_much_is_looked_at_where_ids_have_stood_still_for_long(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookback, "MOST_AHEAD", 3)
    keys, clock, read = run.master.derive(run.run_id, [Role.COORDINATOR]), ServerClock(), list[str]()
    await clock.look(run.redis)
    now_ms = clock.now_ms()
    sealer = Sealer(keys, Role.COORDINATOR, "coordinator", clock_ns=lambda: (now_ms - 5 * MINUTE_MS) * MS_NS)
    await put_at(run, now_ms + 60 * MINUTE_MS, *[sealer.seal(abort(number, 8)) for number in range(1, 10)])
    opener = DatedOpener(keys, clock, guard=None, accept=[Domain.DECISION], carries_out=True)

    def opened(body: bytes, at: str) -> Opened:
        read.append(at)
        return opener.open(body, at, now_ms)

    said = await newest_said(run.redis, names.key(run.run_id, "decisions"), opened, 2)

    assert ([each.round for _, each in said if isinstance(each, Decision)], len(read)) == ([8, 9], 5)


async def test_the_process_behind_one_that_was_quarantined_recalls_that_round_and_goes_on(run: Run) -> None:
    digest = barrier_digest(9, [], [])
    named = pb.BarrierCommit(
        version=1, round=1, roster_generation=1, effective_step=9, digest=digest, lease_token=1, quarantined=["w"]
    )
    at = await put(run, *sealed(run, leads(1), proposal(1, 1), named))

    found = await (await a_recaller(run)).recall(pb.Recall(after=at[0], roster_generation=1), entry_order(at[-1]))

    assert [order.commit.round for order in found] == [1]


async def test_so_does_one_behind_a_process_that_was_never_heard_and_given_up_by_its_name(run: Run) -> None:
    """As a coordinator does that took over, and heard of it on record alone."""
    given_up = abort(1, 1)
    given_up.evicted.add(worker="w")
    at = await put(run, *sealed(run, leads(1), proposal(1, 1), given_up))

    assert await (await a_recaller(run)).recall(pb.Recall(after=at[0], roster_generation=1), entry_order(at[-1])) == []
