"""The runtime beside a trainer on a real server: what a commit waits for, and nobody will hand over."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from esper.bus import tail
from esper.bus.connect import writer
from esper.bus.faults import OutOfMemoryError
from esper.bus.names import key
from esper.errors import EvictedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import unpack
from esper.leyline.frames import FrameDecoder, encode
from esper.runtime.beside.assembly import LOGS
from esper.runtime.beside.link import Link
from esper.runtime.beside.recall import Recaller
from esper.runtime.ending import orphaned
from tests.beside_kit import ME, PATIENCE_S, Run, connected, num_looks, serves, steered
from tests.bus_kit import own_server
from tests.sealed import command

__all__ = ["steered"]


@pytest.mark.parametrize("error", [None, ValueError("of who serves")])
async def test_its_connections_to_redis_end_with_it(steered: Run, error: ValueError | None) -> None:
    before = await connected(steered.redis)

    with suppress(ValueError):
        async with steered.runtime() as (beside, trainer):
            serving = asyncio.create_task(serves(beside))
            while len(await connected(steered.redis) - before) < 1 + len(LOGS):  # it writes, and follows each log
                assert not serving.done()
            trainer.hang_up()
            await serving
            if error is not None:
                raise error

    async with asyncio.timeout(PATIENCE_S):
        while await connected(steered.redis) - before:
            pass


async def test_a_commit_does_not_wait_for_an_entry_that_is_on_no_log(steered: Run) -> None:
    sealed = steered.controller.seal(command())
    gone = await steered.add("commands", sealed)
    await steered.redis.execute_command("XDEL", key(steered.run_id, "commands"), gone)
    await steered.commit(1, gone, sealed)

    async with steered.runtime() as (beside, _):
        with pytest.raises(TrainingError, match=f"names entry {gone} of :commands, which is not on that log"):
            await serves(beside)


async def test_a_look_that_finds_nothing_yet_ends_no_rank(steered: Run) -> None:
    """As at a server that was replaced a moment ago, or has replaced one, and knows of less."""
    sealed = steered.controller.seal(command())
    entry_id = f"{time.time_ns() // 1_000_000}-7"
    await steered.commit(1, entry_id, sealed)

    async with steered.runtime() as (beside, trainer):
        before = await num_looks(steered.redis)
        serving = asyncio.create_task(serves(beside))
        while await num_looks(steered.redis) < before + 2:
            assert not serving.done()
        words = ("XADD", key(steered.run_id, "commands"), entry_id, "m", sealed)
        await steered.redis.execute_command(*words)
        told = await asyncio.wait_for(trainer.hears(), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert [each.adaptation.command_id for each in told.commit.commands] == ["c1"]


async def test_what_a_look_has_settled_is_not_let_go_of_where_redis_takes_nothing(
    short_directory: Path, run_id: str
) -> None:
    """The runtime ends of that, as of any settlement, and the next one is handed it again."""
    with own_server(short_directory) as server:
        async with writer(server.url) as redis:
            steered = Run(redis, server.url, run_id)
            sealed = steered.controller.seal(command())
            commands, entry_id = key(run_id, "commands"), f"{time.time_ns() // 1_000_000}-7"
            await redis.execute_command("XGROUP", "CREATE", commands, ME, "9999999999999-0", "MKSTREAM")
            await steered.commit(1, entry_id, sealed)
            await steered.add("decisions", steered.coordinator.seal(pb.BarrierAbort(version=1, round=2, lease_token=1)))

            async with steered.runtime() as (beside, _):
                beside.outbox.retry_policy = replace(beside.outbox.retry_policy, seconds=0)
                serving = asyncio.create_task(serves(beside))
                while beside.following.orders.num_waiting < 2:
                    await asyncio.sleep(0)
                both = redis.pipeline(transaction=True)
                both.execute_command("XADD", commands, entry_id, "m", sealed)
                both.config_set("maxmemory", "1")
                await both.execute()

                with pytest.raises(OutOfMemoryError):
                    await serving


async def test_nor_for_one_that_the_runtime_before_it_refused(steered: Run) -> None:
    sealed = steered.controller.seal(command())
    first = await steered.add("commands", sealed)
    copied = await steered.add("commands", sealed)
    async with steered.runtime() as (beside, trainer):
        serving = asyncio.create_task(serves(beside))
        while not beside.following.refusals.counts:
            await asyncio.sleep(0)
        trainer.hang_up()
        await serving
    await steered.commit(1, copied, sealed)

    async with steered.runtime() as (beside, _):
        with pytest.raises(TrainingError, match=f"entry {copied} of :commands, refused here: .* met as entry {first}"):
            await serves(beside)


async def test_one_that_was_acknowledged_and_is_named_once_more_is_looked_up(steered: Run) -> None:
    """As where Redis fell back behind the commit, and forgot who had judged it."""
    sealed = steered.controller.seal(command())
    entry_id = await steered.add("commands", sealed)
    words = ("XGROUP", "CREATE", key(steered.run_id, "commands"), ME, "$")
    await steered.redis.execute_command(*words)
    await steered.commit(1, entry_id, sealed)

    async with steered.runtime() as (beside, trainer):
        serving = asyncio.create_task(serves(beside))
        told = await asyncio.wait_for(trainer.hears(), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert [each.adaptation.command_id for each in told.commit.commands] == ["c1"]


async def test_a_commit_that_the_trainer_has_carried_out_waits_for_nothing(steered: Run) -> None:
    """Where Redis fell back to before it was acknowledged, and has lost what it names."""
    decisions = key(steered.run_id, "decisions")
    await steered.redis.execute_command("XGROUP", "CREATE", decisions, ME, "0", "MKSTREAM")
    await steered.commit(5, "1-1", b"lost")
    await steered.redis.execute_command("XREADGROUP", "GROUP", ME, ME, "STREAMS", decisions, ">")
    beat = pb.Heartbeat(version=1, worker=ME, incarnation=7, world_size=1, region="r0", round_applied=5)

    async with steered.runtime() as (beside, trainer):
        trainer.control.send(encode(pb.ToRuntime(heartbeat=beat)))
        serving = asyncio.create_task(serves(beside))
        told = await asyncio.wait_for(trainer.hears(), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert told.commit.commit.round == 5


async def test_an_eviction_is_known_by_who_began_before_its_first_heartbeat(steered: Run) -> None:
    """A runtime may be started anew after its trainer was given up, and read of that at once."""
    evicted = [pb.EvictedProcess(worker=ME, incarnation=7)]
    abort = pb.BarrierAbort(version=1, round=1, lease_token=1, detail="given up", evicted=evicted)
    await steered.add("decisions", steered.coordinator.seal(abort))
    record = pb.RunRecord(version=1, worker=ME, incarnation=7, world_size=1, began=pb.RunBegan())

    async with steered.runtime() as (beside, trainer):
        beside.recaller = Recaller(steered.redis, steered.run_id, ME, {}, beside.clock)
        trainer.control.send(encode(pb.ToRuntime(record=record)) + encode(pb.ToRuntime(begin=pb.Begin())))
        with pytest.raises(EvictedError, match="given up"):
            await serves(beside)


async def test_what_was_said_before_its_eviction_is_told_its_trainer(steered: Run) -> None:
    proposal = pb.BarrierProposal(version=1, round=1, lease_token=1, roster=[ME])
    abort = pb.BarrierAbort(
        version=1, round=1, lease_token=1, detail="given up", evicted=[pb.EvictedProcess(worker=ME)]
    )
    for decision in (proposal, abort):
        await steered.add("decisions", steered.coordinator.seal(decision))

    async with steered.runtime() as (beside, trainer):
        with pytest.raises(EvictedError, match="given up"):
            await serves(beside)

        told = FrameDecoder(pb.ToTrainer).feed(trainer.control.recv(1 << 16))
        assert [each.proposal for each in told if each.HasField("proposal")] == [proposal]


@pytest.mark.parametrize(("is_replica", "resumed"), [(True, True), (True, False), (False, True)])
async def test_what_its_trainer_resumes_is_known_to_a_runtime_that_is_started_anew(
    steered: Run, is_replica: bool, resumed: bool
) -> None:
    """Only a replica that resumes takes up what it has no vote of its own behind."""
    record = pb.RunRecord(version=1, worker=ME, incarnation=7, world_size=1, began=pb.RunBegan(resumed=resumed))

    async with steered.runtime() as (beside, trainer):
        beside.recaller = Recaller(steered.redis, steered.run_id, ME, {}, beside.clock)
        beside.is_replica = is_replica
        trainer.control.send(encode(pb.ToRuntime(record=record)))
        serving = asyncio.create_task(serves(beside))
        while not await steered.redis.xlen(key(steered.run_id, "receipts")):
            assert not serving.done()
        trainer.hang_up()
        await serving

    assert beside.following.inherits == (is_replica and resumed)


async def test_decisions_are_heard_from_a_log_that_began_anew_by_a_clock_behind(steered: Run) -> None:
    """Its entries lie below the one that was the newest when the trainer began."""
    decisions = key(steered.run_id, "decisions")
    began = await steered.commit(1, "1-1", b"of a trainer before it")
    await steered.redis.execute_command("HSET", key(steered.run_id, "began"), ME, began)
    earlier = f"{entry_ms(began) - 3_000}-0"
    commit = pb.BarrierCommit(version=1, round=2, effective_step=9, digest=barrier_digest(9, [], []), lease_token=1)

    async with steered.runtime() as (beside, trainer):
        await steered.redis.delete(decisions)
        sealed = steered.coordinator.seal(commit)
        await steered.redis.execute_command("XADD", decisions, earlier, "m", sealed)
        serving = asyncio.create_task(serves(beside))
        told = await asyncio.wait_for(trainer.hears(), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert (told.commit.commit.round, told.commit.entry_id) == (2, earlier)


async def test_what_became_of_requests_is_on_record_once_though_the_next_runtime_is_told_too(steered: Run) -> None:
    judged = pb.RunRecord(version=1, worker=ME, incarnation=7, world_size=1, judged=pb.RoundJudged(round=3))
    state = pb.SystemStatePacket(version=1, packet_id="p", source_subsystem=ME, timestamp_ns=1, training_run_id="r")

    for number in (1, 2):
        async with steered.runtime() as (beside, trainer):
            serving = asyncio.create_task(serves(beside))
            for said in (
                pb.ToRuntime(record=judged),
                pb.ToRuntime(statement=pb.Statement(incarnation=7, number=number, state=state)),
            ):
                await asyncio.get_running_loop().sock_sendall(trainer.control, encode(said))
            await trainer.hears("statement_stored")
            serving.cancel()
            await asyncio.wait([serving])

    assert await steered.redis.xlen(key(steered.run_id, "receipts")) == 1


async def test_a_heartbeat_says_which_leader_and_roster_its_runtime_has_met(steered: Run) -> None:
    beat = pb.Heartbeat(version=1, worker=ME, incarnation=7, world_size=1, region="r0")
    commit = pb.BarrierCommit(version=1, round=2, effective_step=9, digest=barrier_digest(9, [], []), lease_token=1)
    commit.roster_generation = 4
    await steered.add("decisions", steered.coordinator.seal(commit))

    async with steered.runtime() as (beside, trainer):
        serving = asyncio.create_task(serves(beside))
        await asyncio.wait_for(trainer.hears(), PATIENCE_S)
        trainer.control.send(encode(pb.ToRuntime(heartbeat=beat)))
        said = await asyncio.wait_for(first_beat(steered), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert (said.lease_token, said.roster_generation, said.round_met) == (1, 4, 2)


async def test_what_a_dead_trainer_had_said_beats_for_it_no_more(steered: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes its place would be refused beside it. Its farewell still goes."""
    monkeypatch.setattr("esper.runtime.beside.loop.orphaned", partial(orphaned, grace_s=PATIENCE_S))
    beat = pb.Heartbeat(version=1, worker=ME, incarnation=7, world_size=1)
    farewell = pb.Heartbeat(version=1, worker=ME, incarnation=7, world_size=1, report=pb.WorkerReport(worker=ME))

    async with steered.runtime() as (beside, trainer):
        beside.trainer = os.getpid()  # which did not start this process
        for said in (*[pb.ToRuntime(heartbeat=beat)] * 3, pb.ToRuntime(farewell=farewell)):
            trainer.control.send(encode(said))
        serving = asyncio.create_task(serves(beside))
        await asyncio.wait_for(trainer.hears("report_stored"), PATIENCE_S)
        trainer.hang_up()
        await serving

    assert await steered.redis.xlen(key(steered.run_id, "heartbeats")) == 1


async def first_beat(steered: Run) -> pb.Heartbeat:
    stream = key(steered.run_id, "heartbeats")
    while not (rows := await tail.last(steered.redis, stream, 1)):
        await asyncio.sleep(0)
    sealed = rows[0][1]
    parts = unpack(sealed)
    return pb.Heartbeat.FromString(sealed[parts.body_start : parts.body_end])


async def test_what_was_decided_before_its_trainer_began_is_past_though_redis_does_not_know_when(steered: Run) -> None:
    """As where it fell back to before that, or somebody deleted what says so."""
    earlier = await steered.commit(1, "1-1", b"for a trainer before it")
    commit = pb.BarrierCommit(version=1, round=2, effective_step=9, digest=barrier_digest(9, [], []), lease_token=1)
    await steered.add("decisions", steered.coordinator.seal(commit))

    async with steered.runtime(decided=earlier) as (beside, trainer):
        serving, hearing = asyncio.create_task(serves(beside)), asyncio.create_task(trainer.hears())
        await asyncio.wait([serving, hearing], return_when=asyncio.FIRST_COMPLETED)
        trainer.hang_up()
        await serving

    assert (await hearing).commit.commit.round == 2


def test_a_runtime_that_is_started_anew_is_told_when_its_trainer_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = tmp_path / "writes"
    writes.write_text('#!/bin/sh\nenv > "$0.part" && mv "$0.part" "$0.$$"\n')
    writes.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(writes))
    link, told = Link({"PATH": os.environ["PATH"]}), list[list[str]]()
    for decided in ("", "7-1"):
        link.decided = decided
        link.start()
        while not (environment := Path(f"{writes}.{link.pid}")).exists():
            os.sched_yield()
        told.append(environment.read_text().splitlines())
    link.close()

    assert ["ESPER_LINK_DECIDED=7-1" in environment for environment in told] == [False, True]
    assert ["ESPER_LINK_FRESH=1" in environment for environment in told] == [True, False]
