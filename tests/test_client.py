"""The controller client: what it publishes, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.durability import DurabilityError
from esper.client import Controller
from esper.errors import CommandFailedError, SettingError, UnansweredError, UnknownRunError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime.watching.liveness import Workers
from esper.runtime.watching.observer import NotSeenError
from tests.scripted import WORKERS, ScriptedRun, accepted, applied, cancelled, failed, rejected, seed_state

Reason = pb.ReasonCode
Stage = pb.SeedLifecycleStage


async def test_a_command_is_applied_once_every_rank_says_so(run: ScriptedRun, controller: Controller) -> None:
    receipt = await controller.cull("s0")
    await run.answer(accepted(receipt.command_id, receipt.entry_id, step=116))
    await run.answer(applied(receipt.command_id, receipt.entry_id, "worker-1"))

    acceptance = await receipt.accepted()
    with pytest.raises(UnansweredError):
        await receipt.applied(timeout_s=0.05)
    await run.answer(applied(receipt.command_id, receipt.entry_id, "worker-0"))
    outcomes = await receipt.applied()

    assert acceptance.step == 116
    assert [outcome.worker for outcome in outcomes] == ["worker-0", "worker-1"]


async def test_a_late_rank_is_named(run: ScriptedRun, controller: Controller) -> None:
    await run.beat(1)
    receipt = await controller.cull("s0")
    await run.answer(applied(receipt.command_id, receipt.entry_id, "worker-0"))
    await run.answer(accepted(receipt.command_id, receipt.entry_id))
    await receipt.accepted()  # and what was said before it is heard

    with pytest.raises(UnansweredError) as caught:
        await receipt.applied(timeout_s=0.1)

    assert caught.value.missing == ["worker-1"]


async def test_a_silent_coordinator_is_named(controller: Controller) -> None:
    receipt = await controller.pause()

    with pytest.raises(UnansweredError, match=r"no answer after 0.05 s from coordinator"):
        await receipt.accepted(timeout_s=0.05)
    with pytest.raises(UnansweredError, match="coordinator"):
        await receipt.applied(timeout_s=0.05)


async def test_a_rejection_says_why(run: ScriptedRun, controller: Controller) -> None:
    receipt = await controller.germinate("s0", site="tail", blueprint="lora")
    sentence = "site is 'tail'; expected one of hidden, head"
    await run.answer(rejected(receipt.command_id, receipt.entry_id, Reason.REASON_UNKNOWN_SITE, sentence))

    with pytest.raises(CommandFailedError) as caught:
        await receipt.accepted()
    with pytest.raises(CommandFailedError):
        await receipt.applied()

    assert (caught.value.reason, caught.value.detail) == ("unknown_site", sentence)
    assert caught.value.worker == "coordinator"


async def test_a_rank_that_fails_is_named_with_its_reason(run: ScriptedRun, controller: Controller) -> None:
    receipt = await controller.start_grafting("s0")
    await run.answer(accepted(receipt.command_id, receipt.entry_id))
    failure = failed(Reason.REASON_GATE_FAILED, "fit is 0.01; expected at least 0.05")
    failure.command_id, failure.entry_id = receipt.command_id, receipt.entry_id
    await run.answer(failure)

    with pytest.raises(CommandFailedError) as caught:
        await receipt.applied()

    assert (caught.value.reason, caught.value.worker) == ("gate_failed", "worker-1")


async def test_the_refusal_of_a_copy_leaves_the_command_alone(run: ScriptedRun, controller: Controller) -> None:
    receipt = await controller.cull("s0")
    await run.answer(rejected(receipt.command_id, "9-0", Reason.REASON_REPLAYED, "a copy"))
    await run.answer(accepted(receipt.command_id, receipt.entry_id))
    await run.answer(rejected(receipt.command_id, receipt.entry_id, Reason.REASON_DUPLICATE, "again"))
    for worker in WORKERS:
        await run.answer(applied(receipt.command_id, receipt.entry_id, worker))

    assert len(await receipt.applied()) == 2


async def test_a_worker_may_not_judge_and_a_coordinator_may_not_apply(run: ScriptedRun, controller: Controller) -> None:
    receipt = await controller.cull("s0")
    ids = (receipt.command_id, receipt.entry_id)
    await run.say("receipts", Role.WORKER, "worker-0", rejected(*ids, Reason.REASON_CULLED, "no"))
    await run.say("receipts", Role.COORDINATOR, "coordinator", applied(*ids, "worker-0"))
    await run.answer(accepted(*ids))

    await receipt.accepted()

    assert receipt.outcomes == []


async def test_a_held_gate_is_tried_again_after_an_epoch(run: ScriptedRun, controller: Controller) -> None:
    held = failed(Reason.REASON_GATE_FAILED, "not yet")
    serving = asyncio.create_task(run.serve({1: held}))
    training = asyncio.create_task(epochs_go_on(run))

    outcomes = await controller.persist(controller.stabilize, "s0")
    await cancelled(serving)
    await cancelled(training)

    assert [outcome.worker for outcome in outcomes] == list(WORKERS)
    assert len(await run.received(count=2)) == 2


async def test_an_epoch_of_a_slow_run_is_waited_for_as_long_as_is_said(
    run: ScriptedRun, controller: Controller
) -> None:
    await run.beat(7)
    serving = asyncio.create_task(run.serve({1: failed(Reason.REASON_GATE_FAILED, "not yet")}))

    with pytest.raises(NotSeenError) as told:
        await controller.persist(controller.stabilize, "s0", epoch_timeout_s=0.01)
    await cancelled(serving)

    assert told.value.waited_s == 0.01
    assert "epoch_timeout_s" in str(NotSeenError(0.01, {"worker-0": pb.Heartbeat()}))


async def epochs_go_on(run: ScriptedRun) -> None:
    """As fast as Redis takes the heartbeats."""
    for epoch in itertools.count():
        await run.beat(epoch)


@pytest.mark.parametrize(
    ("failure", "is_gone"),
    [
        (failed(Reason.REASON_ILLEGAL_TRANSITION, "from DORMANT"), False),
        (failed(Reason.REASON_GATE_FAILED, "no gain", stage=Stage.SEED_STAGE_EMBARGOED), True),
    ],
)
async def test_what_an_epoch_cannot_mend_is_not_tried_again(
    run: ScriptedRun, controller: Controller, failure: pb.CommandReceipt, is_gone: bool
) -> None:
    serving = asyncio.create_task(run.serve({1: failure}))

    with pytest.raises(CommandFailedError, match=failure.detail) as caught:
        await controller.persist(controller.fossilize, "s0")
    await cancelled(serving)

    assert caught.value.ended_the_seed is is_gone


async def test_status_shows_the_newest_heartbeat_of_each_worker(run: ScriptedRun, controller: Controller) -> None:
    await run.beat(1)
    await run.beat(2, workers=("worker-1",))

    workers = await controller.status()

    assert {name: beat.epoch for name, beat in workers.items()} == {"worker-0": 1, "worker-1": 2}


async def test_epochs_waits_for_the_slowest_rank(
    run: ScriptedRun, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, until = asyncio.Event(), controller.until

    async def noted(wanted: Callable[[Workers], bool], timeout_s: float = 60.0) -> Workers:
        seen = await until(wanted, timeout_s)
        begun.set()
        return seen

    monkeypatch.setattr(controller, "until", noted)
    await run.beat(3)
    waiting = asyncio.create_task(controller.epochs(2))
    await begun.wait()  # it has seen epoch 3
    await run.beat(5, workers=("worker-0",))

    done, _ = await asyncio.wait([waiting], timeout=0.05)
    await run.beat(5, workers=("worker-1",))
    workers = await waiting

    assert not done
    assert {beat.epoch for beat in workers.values()} == {5}


async def test_a_seed_reaches_a_stage_when_every_rank_shows_it(run: ScriptedRun, controller: Controller) -> None:
    await run.beat(1, seed_state("s0", Stage.SEED_STAGE_TRAINING))
    await run.beat(2, seed_state("s0", Stage.SEED_STAGE_EMBARGOED), workers=("worker-0",))
    waiting = asyncio.create_task(controller.reaches("s0", "EMBARGOED"))

    done, _ = await asyncio.wait([waiting], timeout=0.05)
    await run.beat(2, seed_state("s0", Stage.SEED_STAGE_EMBARGOED), workers=("worker-1",))
    states = await waiting

    assert not done
    assert [state.stage for state in states] == [Stage.SEED_STAGE_EMBARGOED] * 2
    assert [state.site for state in states] == ["head", "head"]


async def test_waiting_for_what_never_comes_says_where_the_workers_stand(
    run: ScriptedRun, controller: Controller
) -> None:
    await run.beat(7)

    for timeout_s in (0.1, 1.0, 10.0):
        with pytest.raises(NotSeenError) as told:
            await controller.reaches("s0", "FOSSILIZED", timeout_s)
        if told.value.workers:  # of a server that stands still none is heard
            break

    assert "worker-0 at step 700, epoch 7" in str(told.value)
    with pytest.raises(SettingError, match="stage is 'RIPE'"):
        await controller.reaches("s0", "RIPE")


async def test_frames_of_all_regions_come_in_one_stream(run: ScriptedRun, controller: Controller) -> None:
    await run.beat(1)
    for rank, worker in enumerate(WORKERS):
        frame = pb.TelemetryFrame(version=1, source=worker, incarnation=1, region=f"region-{rank}")
        await run.say(f"region-{rank}/telemetry", Role.WORKER, worker, frame)

    async with aclosing(controller.telemetry("worker", since="0")) as frames:
        producers = {(await anext(frames)).header.producer for _ in WORKERS}

    assert producers == set(WORKERS)


async def test_junk_among_the_telemetry_is_passed_over(
    run: ScriptedRun, controller: Controller, redis: connect.Redis
) -> None:
    await redis.xadd(f"esper:{{{run.run_id}}}:global", {"m": b"junk"})
    aggregate = pb.AggregatedTelemetry(version=1, sequence=1, num_packets=64)
    await run.say("global", Role.GLOBAL, "global", aggregate)

    async with aclosing(controller.telemetry("global", since="0")) as aggregates:
        opened = await anext(aggregates)

    assert opened.message == aggregate


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() == before


async def test_leaving_ends_every_task(run: ScriptedRun) -> None:
    await run.beat(1)
    async with no_task_left(), Controller.connect(run.name) as controller:
        await controller.epochs(0)
        async with aclosing(controller.telemetry("global", since="0")) as aggregates:
            waiting = asyncio.create_task(anext(aggregates))
            await cancelled_anext(waiting)


async def cancelled_anext(task: asyncio.Task[object]) -> None:
    await asyncio.wait([task], timeout=0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_arguments_win_over_the_environment(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPER_RUN", "another")

    async with Controller.connect(run.name) as controller:
        assert controller.run_id == run.run_id
    with pytest.raises(UnknownRunError, match="'another'"):
        async with Controller.connect():
            pass


async def test_durable_mode_is_refused_where_redis_cannot_give_it(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPER_DURABILITY", "durable")

    with pytest.raises(DurabilityError, match="may lose the last 2 s of acknowledged entries"):
        async with Controller.connect(run.name):
            pass
    with pytest.raises(SettingError, match="ESPER_DURABILITY is 'safe'; expected fast or durable"):
        async with Controller.connect(run.name, durability="safe"):
            pass
    async with Controller.connect(run.name, durability="fast") as controller:
        assert controller.run_id == run.run_id


async def test_the_environment_alone_names_a_run_on_an_outside_server(
    run: ScriptedRun, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPER_RUN", run.run_id)
    monkeypatch.setenv("ESPER_REDIS_URL", redis_url)
    with pytest.raises(SettingError, match="ESPER_KEYRING"):
        async with Controller.connect():
            pass

    monkeypatch.setenv("ESPER_KEYRING", str(run.keyring))

    async with Controller.connect() as controller:
        assert controller.run_id == run.run_id


async def test_the_keys_of_another_run_do_not_fit(run: ScriptedRun, short_directory: Path) -> None:
    path = short_directory / f"{run.name}.json"
    run.master.derive("other-00000000", [Role.CONTROLLER]).save(path)

    with pytest.raises(SettingError, match="other-00000000"):
        async with Controller.connect(run.name, keyring=path):
            pass


async def test_a_word_that_stands_for_nothing_is_refused_before_it_is_sent(
    run: ScriptedRun, controller: Controller, redis: connect.Redis
) -> None:
    with pytest.raises(SettingError, match="curve is 'wavy'; expected one of linear, cosine, sigmoid"):
        await controller.start_grafting("s0", curve="wavy")

    assert await redis.exists(f"esper:{{{run.run_id}}}:commands") == 0


async def test_importance_is_gathered_from_its_parts(run: ScriptedRun, controller: Controller) -> None:
    asking = asyncio.create_task(controller.importance(timeout_s=20.0))
    [opened] = await run.received()
    assert isinstance(opened.message, pb.AdaptationCommand)
    asked = opened.message.structural_pruning.request_id
    await run.beat(1)
    for number, request_id in ((1, asked), (0, "another"), (0, asked)):
        told = pb.StructuralPruningRequest(
            request_id=request_id, phase=pb.PruningPhase.PRUNING_PHASE_ACTIVE, part=number, num_parts=2, step=7
        )
        beat = pb.Heartbeat(version=1, worker="worker-0", world_size=2, pruning=told)
        await run.say("heartbeats", Role.WORKER, "worker-0", beat)
    await run.apply(opened.message.command_id, opened.entry_id, *WORKERS)

    parts = await asking

    assert [(part.part, part.request_id) for part in parts] == [(0, asked), (1, asked)]
