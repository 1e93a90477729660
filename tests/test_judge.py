"""Every verdict follows from the votes, the log's order and the effective step alone; a refusal says what was met."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from esper.errors import RefusedError, listed
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind
from esper.leyline.lifecycle import reason_name
from esper.tamiyo.judge import Judge, Waiting
from esper.tamiyo.world import Catalogue, World
from tests.rounds import germinate, heartbeat, optimizer, rollback, seed_command, state, train, vote, waiting

Op = pb.SeedOperation
Stage = pb.SeedLifecycleStage
Optimizer = pb.OptimizerCommandType
Command = pb.AdaptationCommand | pb.OptimizerCommand

SEEDS = [
    state("busy", Stage.SEED_STAGE_TRAINING, "hidden"),
    state("banned", Stage.SEED_STAGE_EMBARGOED, "elsewhere", embargo=5),
]


def judge(epoch: int = 4) -> Judge:
    ranks = [
        vote(0, seeds=SEEDS, snapshots={8: b"a", 16: b"b", 24: b"c"}, optimizers={"host": 2, "busy": 7}),
        vote(1, seeds=SEEDS, snapshots={8: b"a", 16: b"b", 24: b"other"}, optimizers={"host": 2, "busy": 7}),
    ]
    return Judge(World.of(ranks), Catalogue([heartbeat(0), heartbeat(1)]), 32, epoch, 1_000)


def breaker(state: pb.CircuitBreakerState, seed_id: str = "busy") -> pb.AdaptationCommand:
    return pb.AdaptationCommand(circuit_breaker=pb.CircuitBreakerCommand(seed_id=seed_id, desired_state=state))


def adjust(name: str) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id=name))


def masks(**fields: Any) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(pruning_masks=pb.StructuralPruningResponse(request_id="r", **fields))


def pause(seed_id: str = "") -> pb.AdaptationCommand:
    return pb.AdaptationCommand(pause_command=pb.PauseCommand(seed_id=seed_id))


@pytest.mark.parametrize(
    ("command", "reason", "detail"),
    [
        (germinate(site="hed"), "UNKNOWN_SITE", "site 'hed' is unknown (near: 'head'); sites: head, hidden"),
        (germinate(site="hidden"), "SITE_TAKEN", "held by seed 'busy' (TRAINING)"),
        (germinate("busy"), "ILLEGAL_TRANSITION", "GERMINATE from TRAINING"),
        (seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="mpl"), "UNKNOWN_BLUEPRINT", "blueprints: lora"),
        (
            seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rnk": 4}),
            "UNKNOWN_PARAMETER",
            "blueprint 'lora' has no parameter 'rnk' (near: 'rank'); parameters: rank",
        ),
        (
            seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 65}),
            "OUT_OF_RANGE",
            "is 65; expected a whole number from 1 to 64",
        ),
        (
            seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 1.5}),
            "OUT_OF_RANGE",
            "is 1.5; expected a whole number",
        ),
        (seed_command(Op.SEED_OP_START_GRAFTING, "busy", parameters={"alpha": 2}), "OUT_OF_RANGE", "from 0 to 1"),
        (seed_command(Op.SEED_OP_CULL, "busy", parameters={"x": 1}), "UNKNOWN_PARAMETER", "parameters: none"),
        (seed_command(Op.SEED_OP_CULL, "busy", parameters={"auto": 1}), "UNKNOWN_PARAMETER", "parameters: none"),
        (seed_command(Op.SEED_OP_START_GRAFTING, "busy", parameters={"auto": 2}), "OUT_OF_RANGE", "from 0 to 1"),
        (train("nobody"), "UNKNOWN_SEED", "seed 'nobody' is unknown; seeds: busy, banned"),
        (train("busy"), "ILLEGAL_TRANSITION", "START_TRAINING from TRAINING"),
        (seed_command(Op.SEED_OP_FINE_TUNE, "busy"), "NOT_SUPPORTED", "FINE_TUNE"),
        (seed_command(Op.SEED_OP_RESET, "banned"), "EMBARGOED", "embargoed in epoch 4; expected epoch 5"),
        (pause("nobody"), "UNKNOWN_SEED", "'nobody'"),
        (breaker(pb.CircuitBreakerState.BREAKER_OPEN, "nobody"), "UNKNOWN_SEED", "'nobody'"),
        (breaker(pb.CircuitBreakerState.BREAKER_HALF_OPEN), "OUT_OF_RANGE", "expected OPEN or CLOSED"),
        (breaker(pb.CircuitBreakerState.BREAKER_OPEN, "banned"), "ILLEGAL_TRANSITION", "from EMBARGOED"),
        (adjust("nobody"), "UNKNOWN_OPTIMIZER", "optimizer 'nobody' is unknown; optimizers: host, busy"),
        (adjust("banned"), "UNKNOWN_OPTIMIZER", "optimizers: host, busy"),
        (rollback(24), "NO_SNAPSHOT", "step 24 is held by all ranks; steps with one, newest first: 16, 8"),
        (masks(validation_passed=False), "OUT_OF_RANGE", "validation_passed is False"),
        (masks(validation_passed=True), "OUT_OF_RANGE", "number of pruning_masks is 0"),
        (pb.AdaptationCommand(), "MALFORMED", "empty"),
        (optimizer(Optimizer.OPTIMIZER_COMMAND_CREATE_SEED, "nobody"), "UNKNOWN_OPTIMIZER", "host, busy"),
        (
            optimizer(Optimizer.OPTIMIZER_COMMAND_RESET_STATE, "busy", generation=6),
            "WRONG_GENERATION",
            "generation of optimizer 'busy' is 7; the command expects 6",
        ),
        (
            optimizer(Optimizer.OPTIMIZER_COMMAND_STEP, "busy", first=20, steps=12),
            "UNEXPECTED_STEP",
            "ends before step 32; it would take effect at step 32",
        ),
    ],
)
def test_a_command_that_does_not_fit_is_refused_with_what_was_met(command: Command, reason: str, detail: str) -> None:
    with pytest.raises(RefusedError) as refused:
        judge().accept(waiting(command))

    assert reason_name(refused.value.reason) == reason.lower()
    assert detail in refused.value.detail


@pytest.mark.parametrize(
    "command",
    [
        germinate(),
        seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 64}),
        seed_command(Op.SEED_OP_START_GRAFTING, "busy", parameters={"alpha": 0.5, "steps": 20}),
        seed_command(Op.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 4, "auto": 1}),
        seed_command(Op.SEED_OP_START_GRAFTING, "busy", parameters={"auto": 0}),
        seed_command(Op.SEED_OP_CANCEL, "busy"),
        breaker(pb.CircuitBreakerState.BREAKER_OPEN),
        breaker(pb.CircuitBreakerState.BREAKER_CLOSED, "banned"),
        adjust("host"),
        pb.AdaptationCommand(structural_pruning=pb.StructuralPruningRequest()),
        masks(validation_passed=True, pruning_masks=[pb.PruningMask(parameter="body.weight")]),
        masks(rollback_required=True),
        adjust("busy"),
        pause(),
        pause("busy"),
        pb.AdaptationCommand(emergency_command=pb.EmergencyCommand(level=pb.EmergencyLevel.EMERGENCY_HALT)),
        optimizer(Optimizer.OPTIMIZER_COMMAND_INITIALIZE_HOST, "host", generation=2),
        optimizer(Optimizer.OPTIMIZER_COMMAND_STEP, "busy", first=20, steps=13),
        optimizer(Optimizer.OPTIMIZER_COMMAND_STEP, "busy"),
        optimizer(Optimizer.OPTIMIZER_COMMAND_REGISTER_TEACHER, "host"),
    ],
)
def test_a_command_that_fits_is_named_in_the_commit(command: Command) -> None:
    named = judge().accept(waiting(command, "7-3"))

    assert (named.entry_id, named.command_id, named.envelope_digest) == ("7-3", command.command_id, b"e" * 32)
    assert named.stream == ("commands" if isinstance(command, pb.AdaptationCommand) else "optimizer")


def test_a_lease_for_the_host_fits_only_where_every_rank_lets_leases_govern_it() -> None:
    lease = waiting(optimizer(Optimizer.OPTIMIZER_COMMAND_STEP, "host"))

    assert Judge(World.of([vote(0, own_host=True), vote(1, own_host=True)]), Catalogue(), 32, 0, 0).accept(lease)
    for ranks in ((False, False), (True, False)):
        mixed = World.of([vote(rank, own_host=own) for rank, own in enumerate(ranks)])
        with pytest.raises(RefusedError, match="own_host=True") as refused:
            Judge(mixed, Catalogue(), 32, 0, 0).accept(lease)
        assert refused.value.reason == pb.ReasonCode.REASON_NOT_SUPPORTED


def test_a_command_meets_the_outcome_of_those_before_it() -> None:
    one = judge()

    one.accept(waiting(germinate()))
    one.accept(waiting(optimizer(Optimizer.OPTIMIZER_COMMAND_CREATE_SEED, "s0")))
    one.accept(waiting(train()))
    one.accept(waiting(seed_command(Op.SEED_OP_CULL)))
    with pytest.raises(RefusedError, match="just begun") as refused:
        one.accept(waiting(seed_command(Op.SEED_OP_RESET)))

    assert refused.value.reason == pb.ReasonCode.REASON_EMBARGOED


def test_an_embargo_ends_with_its_epoch_and_frees_the_seed() -> None:
    one = judge(epoch=5)

    one.accept(waiting(seed_command(Op.SEED_OP_RESET, "banned")))

    assert one.accept(waiting(germinate("banned"))).command_id


def test_a_rollback_to_step_zero_takes_the_newest_snapshot_that_all_ranks_share() -> None:
    named = judge().accept(waiting(rollback(0)))

    assert named.snapshot_step == 16


def test_a_run_without_a_common_snapshot_refuses_every_rollback() -> None:
    bare = Judge(World.of([vote(0), vote(1)]), Catalogue(), 32, 0, 0)

    with pytest.raises(RefusedError, match="steps with one, newest first: none"):
        bare.accept(waiting(rollback(0)))


@pytest.mark.parametrize(
    ("kind", "last_good"), [(DeadlineKind.STEP, 32), (DeadlineKind.EPOCH, 4), (DeadlineKind.TIME_NS, 1_000)]
)
def test_a_command_past_its_deadline_does_not_take_effect(kind: DeadlineKind, last_good: int) -> None:
    judge().accept(waiting(germinate(), deadline=(kind, last_good)))

    with pytest.raises(RefusedError) as refused:
        judge().accept(waiting(germinate(), deadline=(kind, last_good - 1)))

    assert refused.value.reason == pb.ReasonCode.REASON_PAST_DEADLINE


def test_a_request_is_taken_over_only_while_it_is_legal() -> None:
    one = judge()
    request = pb.SeedRequest(seed_id="busy", operation=Op.SEED_OP_CULL)

    assert one.take_over(request)
    assert not one.take_over(request)
    assert not one.take_over(pb.SeedRequest(seed_id="nobody", operation=Op.SEED_OP_CULL))


def test_only_what_every_worker_names_can_be_germinated() -> None:
    other = heartbeat(1)
    other.sites[:] = ["hidden"]
    other.blueprints[0].digest = "bb"

    catalogue = Catalogue([heartbeat(0), other])

    assert (catalogue.sites, dict(catalogue.blueprints)) == (("hidden",), {})


class Unread(list[pb.Heartbeat]):
    """Heartbeats that nobody may look at."""

    def __iter__(self) -> Iterator[pb.Heartbeat]:
        raise AssertionError("what can be germinated was worked out")


def test_a_round_that_germinates_nothing_does_not_work_out_what_can_be() -> None:
    judging = Judge(World.of([vote(0, seeds=SEEDS)]), Catalogue(Unread([heartbeat(0)])), 32, 4, 1_000)

    judging.accept(waiting(seed_command(Op.SEED_OP_CULL, "busy")))

    with pytest.raises(AssertionError):
        judging.accept(waiting(germinate()))


def test_what_can_be_germinated_takes_no_square_of_the_number_of_sites() -> None:
    sites = [f"blocks.{number}" for number in range(1_000)]
    workers = [pb.Heartbeat(sites=sites) for _ in range(64)]
    began_s = time.thread_time()

    assert Catalogue(workers).sites == tuple(sites)

    assert time.thread_time() - began_s < 0.7  # 0.02 s; each site looked for in each list of them: 4 s


def test_log_order_is_by_entry_and_commands_come_first() -> None:
    step = optimizer(Optimizer.OPTIMIZER_COMMAND_STEP)
    entries = [waiting(step, "10-0"), waiting(germinate(), "9-10"), waiting(germinate(), "10-0"), waiting(step, "9-9")]

    ordered = sorted(entries, key=lambda each: each.order)

    assert [(each.entry_id, each.stream) for each in ordered] == [
        ("9-9", "optimizer"),
        ("9-10", "commands"),
        ("10-0", "commands"),
        ("10-0", "optimizer"),
    ]


def test_a_site_under_an_embargo_says_when_it_is_free() -> None:
    spent = state("spent", Stage.SEED_STAGE_EMBARGOED, "head", embargo=5)
    judging = Judge(World.of([vote(0, seeds=[spent])]), Catalogue([heartbeat(0)]), 32, 4, 1_000)

    with pytest.raises(RefusedError, match="held by seed 'spent' \\(EMBARGOED; `reset` frees it from epoch 5 on\\)"):
        judging.accept(waiting(germinate("s1", site="head")))


def test_of_many_names_an_error_spells_the_first_and_how_many_more_there_are() -> None:
    first = ", ".join(f"layers.{number}" for number in range(20))

    assert listed(f"layers.{number}" for number in range(20)) == first
    assert listed(f"layers.{number}" for number in range(300)) == f"{first}, and 280 more"
    assert listed([]) == "none"


def test_a_round_looks_for_near_names_of_its_first_refusals_alone() -> None:
    judging = judge()

    details = [refusal(judging, waiting(germinate(f"s{number}", site="hed"))) for number in range(7)]
    details += [refusal(judging, waiting(train("bussy"))), refusal(judging, waiting(train("bussy")))]

    assert [("near: " in detail) for detail in details] == [True] * 8 + [False]
    assert details[-1] == "seed 'bussy' is unknown; seeds: busy, banned"


def refusal(judging: Judge, command: Waiting) -> str:
    with pytest.raises(RefusedError) as refused:
        judging.accept(command)
    return refused.value.detail
