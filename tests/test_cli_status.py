"""`esper status`: where each worker and each seed stands."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from esper.cli.output.format import heartbeat_line
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from tests.cli_kit import called
from tests.scripted import ScriptedRun, seed_state
from tests.view_kit import went_back

UNTOLD = "  culled: why is not among the newest answers; `esper audit` reads all"


async def shown(run: str, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper status`."""
    return await called("status", "--run", run, *arguments)


def embargoed(seed_id: str, since_step: int) -> pb.SeedState:
    state = seed_state(seed_id, pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    state.stage_since_step = since_step
    return state


async def test_names_of_seeds_and_sites_move_no_cursor(run: ScriptedRun) -> None:
    seed = pb.SeedState(seed_id="s\x1b[2J", site="head\r", stage=pb.SeedLifecycleStage.SEED_STAGE_TRAINING)
    await run.beat(3, seed, workers=("worker-0",))

    _, out, _ = await shown(run.name)

    assert out.splitlines()[2] == "  s?[2J at head?  TRAINING  alpha 0"


async def test_each_worker_has_a_line_and_each_seed_one_for_all(run: ScriptedRun) -> None:
    await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING))

    _, out, _ = await shown(run.name)
    lines = out.splitlines()

    assert lines[0] == f"run {run.run_id}: 2 workers heard of"
    assert lines[1].startswith("worker-0  rank 0/2  region-0  step 300  epoch 3  loss 0.5")
    assert lines[2].startswith("worker-1  rank 1/2")
    assert lines[3:] == ["on all 2 workers", "  s0 at head (lora)  BLENDING  alpha 0.25"]


async def test_what_workers_say_differently_of_a_seed_stands_below_each(run: ScriptedRun) -> None:
    stages = (pb.SeedLifecycleStage.SEED_STAGE_BLENDING, pb.SeedLifecycleStage.SEED_STAGE_TRAINING)
    for rank, stage in enumerate(stages):
        growing = [seed_state("s0", stage), seed_state("s1", stages[0]), *[seed_state("s2", stages[0])] * rank]
        alone = pb.Heartbeat(version=1, worker=f"worker-{rank}", world_size=1, step=300, seeds=growing)
        await run.say("heartbeats", Role.WORKER, f"worker-{rank}", alone)

    _, out, _ = await shown(run.name)

    assert [" ".join(line.split()[:4]) for line in out.splitlines()[1:]] == [
        "worker-0 rank 0/1 step",
        "s0 at head (lora)",
        "worker-1 rank 0/1 step",
        "s0 at head (lora)",
        "s2 at head (lora)",
        "on all 2 workers",
        "s1 at head (lora)",
    ]


async def test_a_replica_that_trains_alone_is_one_worker_heard_of_by_the_servers_clock(run: ScriptedRun) -> None:
    hour_ago_ns = time.time_ns() - 3_600_000_000_000  # by the trainer's machine, whose clock is behind
    alone = pb.Heartbeat(version=1, worker="worker-0", world_size=1, step=300, time_ns=hour_ago_ns)
    await run.say("heartbeats", Role.WORKER, "worker-0", alone)

    _, out, _ = await shown(run.name)
    heard, line = out.splitlines()

    assert heard == f"run {run.run_id}: 1 worker heard of"
    assert 0.0 <= float(line.split()[-3]) < 60.0 and line.endswith(" s ago")


@pytest.mark.parametrize(
    ("fields", "age_s", "told"),
    [
        ({}, 4.9, "loss 0.5  4.9 s ago"),
        ({}, 35.4, "loss 0.5  SILENT  35.4 s ago"),
        ({"busy": pb.BusyWith.BUSY_PAUSED}, 1.0, "loss 0.5  paused  1.0 s ago"),
        ({"repeated": True}, 1.0, "loss 0.5  away  1.0 s ago"),
        ({"report": pb.WorkerReport(worker="worker-0")}, 35.4, "loss 0.5  ended  35.4 s ago"),
    ],
)
def test_a_worker_says_what_it_is_at_unless_it_trains(fields: dict[str, Any], age_s: float, told: str) -> None:
    beat = pb.Heartbeat(version=1, worker="worker-0", world_size=1, step=300, loss=0.5, **fields)

    assert heartbeat_line(beat, age_s).endswith(told)


async def test_seeds_and_workers_stand_in_the_order_of_the_numbers_in_their_names(run: ScriptedRun) -> None:
    growing = [seed_state(f"s-{number}", pb.SeedLifecycleStage.SEED_STAGE_TRAINING) for number in (10, 2, 1)]
    for name in ("worker-10", "worker-2"):
        alone = pb.Heartbeat(
            version=1, worker=name, world_size=1, step=300, seeds=growing if name == "worker-2" else []
        )
        await run.say("heartbeats", Role.WORKER, name, alone)

    _, out, _ = await shown(run.name)

    firsts = [line.split()[0] for line in out.splitlines()[1:]]
    assert firsts == ["worker-2", "s-1", "s-2", "s-10", "worker-10"]


async def test_an_embargoed_seed_says_until_when(run: ScriptedRun) -> None:
    culled = seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    culled.embargo_until_epoch = 8
    await run.beat(3, culled, workers=("worker-0",))

    _, out, _ = await shown(run.name)
    lines = out.splitlines()

    assert lines[0] == f"run {run.run_id}: 1 of 2 workers heard of"
    assert lines[2] == f"  s0 at head (lora)  EMBARGOED until epoch 8  alpha 0.25{UNTOLD}"


@pytest.mark.parametrize(("epoch", "waits"), [(7, "until epoch 8"), (8, "until a reset, possible since epoch 8")])
async def test_a_seed_whose_embargo_is_over_says_that_it_waits_for_a_reset(
    run: ScriptedRun, epoch: int, waits: str
) -> None:
    culled = seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    culled.embargo_until_epoch = 8
    await run.beat(epoch, culled, workers=("worker-0",))

    _, out, _ = await shown(run.name)

    assert out.splitlines()[2] == f"  s0 at head (lora)  EMBARGOED {waits}  alpha 0.25{UNTOLD}"


async def test_a_seed_says_why_it_was_culled_without_a_command(run: ScriptedRun) -> None:
    why = "SEED_GATE_G2 was failed 10 times; at most 10"
    for number, detail in enumerate(("an older life", why)):
        culled = pb.CommandReceipt(
            version=1,
            command_id="s0",
            worker="worker-0",
            status=pb.ReceiptStatus.RECEIPT_APPLIED,
            stage=pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED,
            step=100 * (number + 1),
            detail=detail,
        )
        judged = pb.RoundJudged(round=number + 1, outcomes=[culled])
        record = pb.RunRecord(version=1, worker="worker-0", incarnation=1, world_size=2, judged=judged)
        await run.say("receipts", Role.WORKER, "worker-0", record)
    await run.beat(3, embargoed("s0", since_step=200), workers=("worker-0",))

    _, out, err = await shown(run.name)
    _, told, _ = await shown(run.name, "--json")
    await run.beat(4, embargoed("s0", since_step=300), workers=("worker-0",))  # of its next life, by a command
    _, later, _ = await shown(run.name)

    assert out.splitlines()[2].endswith(f"EMBARGOED until a reset, possible since epoch 0  alpha 0.25  culled: {why}")
    assert json.loads(told)["culled"] == {"s0": why}
    assert later.splitlines()[2].endswith(f"EMBARGOED until a reset, possible since epoch 0  alpha 0.25{UNTOLD}")
    assert err == ""


async def test_a_seed_that_failed_its_gate_for_good_says_what_the_gate_met(run: ScriptedRun) -> None:
    why = "low is -0.02024, expected above 0"
    failed = pb.CommandReceipt(
        version=1,
        command_id="s0",
        worker="worker-0",
        status=pb.ReceiptStatus.RECEIPT_FAILED,
        reason=pb.ReasonCode.Name(pb.ReasonCode.REASON_GATE_FAILED),
        stage=pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED,
        gate=pb.SeedLifecycleGate.SEED_GATE_G4_SYSTEM_IMPACT,
        step=200,
        detail=why,
    )
    judged = pb.RoundJudged(round=1, outcomes=[failed])
    record = pb.RunRecord(version=1, worker="worker-0", incarnation=1, world_size=2, judged=judged)
    await run.say("receipts", Role.WORKER, "worker-0", record)
    await run.beat(3, embargoed("s0", since_step=200), workers=("worker-0",))

    _, out, _ = await shown(run.name)

    assert out.splitlines()[2].endswith(f"culled: {why}")


async def test_json_is_one_object(run: ScriptedRun) -> None:
    await run.beat(3, workers=("worker-1",))

    _, out, _ = await shown(run.run_id, "--json")
    said = json.loads(out)

    assert said["run"] == run.run_id
    assert said["workers"]["worker-1"]["epoch"] == "3"
    assert said["culled"] == {}


async def test_a_run_that_has_not_begun_has_no_workers(run: ScriptedRun) -> None:
    assert await shown(run.name) == (0, f"run {run.run_id}: 0 workers heard of\n", "")


async def test_an_unknown_run_is_one_line_that_names_the_live_ones(run: ScriptedRun) -> None:
    status, _, err = await shown("nowhere")

    assert (status, err.count("\n")) == (2, 1)
    assert run.run_id in err


async def test_a_seed_says_that_a_rollback_put_it_where_it_stands(run: ScriptedRun) -> None:
    done = pb.CommandReceipt(version=1, command_id="r1", entry_id="7-0", worker="worker-0", step=300, world_size=2)
    done.status, done.detail = pb.ReceiptStatus.RECEIPT_APPLIED, "rolled back to the snapshot of step 80"
    await run.say("decisions", Role.COORDINATOR, "coordinator", went_back("7-0", 300))
    await run.answer(done)
    seeds = [seed_state(name, pb.SeedLifecycleStage.SEED_STAGE_PROBATIONARY) for name in ("s0", "s1")]
    seeds[0].stage_since_step, seeds[1].stage_since_step = 300, 299
    await run.beat(3, *seeds, workers=("worker-0",))

    _, out, _ = await shown(run.name)
    _, told, _ = await shown(run.name, "--json")

    why = "rolled back to the snapshot of step 80 by command r1"
    assert [line.partition("alpha 0.25")[2] for line in out.splitlines()[2:]] == [f"  {why}", ""]
    assert json.loads(told)["rolled_back"] == {"s0": why}


async def test_a_seed_that_was_culled_by_hand_names_the_command_where_commands_can_be_read(run: ScriptedRun) -> None:
    run.master.derive(run.run_id, [Role.OBSERVER]).save(run.keyring.with_name("observer.json"))
    asked = pb.AdaptationCommand(version=1, command_id="c1", command_type=pb.CommandType.COMMAND_SEED)
    asked.seed_command.seed_id, asked.seed_command.operation = "s0", pb.SeedOperation.SEED_OP_CULL
    entry_id = await run.say("commands", Role.CONTROLLER, "ops", asked)
    done = pb.CommandReceipt(version=1, command_id="c1", entry_id=entry_id, worker="worker-0", step=300, world_size=2)
    done.status, done.stage = pb.ReceiptStatus.RECEIPT_APPLIED, pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED
    done.detail = "culled by command"
    await run.answer(done)
    await run.beat(3, embargoed("s0", since_step=300), workers=("worker-0",))

    _, out, err = await shown(run.name)

    assert out.splitlines()[2].endswith("  culled: by command c1 of ops")
    assert err == ""


async def test_of_many_workers_one_that_beats_less_often_is_heard_of_too(run: ScriptedRun) -> None:
    for worker in ["worker-0", *(f"worker-{1 + number % 63}" for number in range(300))]:
        beat = pb.Heartbeat(version=1, worker=worker, rank=int(worker[7:]), world_size=64, region="r0", time_ns=1)
        await run.say("heartbeats", Role.WORKER, worker, beat)

    _, out, _ = await shown(run.name)

    assert out.startswith(f"run {run.run_id}: 64 workers heard of\n")
