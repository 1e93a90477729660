"""Each operation of the controller is sealed as the one message that says it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.json_format import MessageToDict

from esper.client import Controller, Receipt
from esper.errors import RefusedError, SettingError
from esper.leyline import commands, contracts as pb
from esper.leyline.envelope import DeadlineKind
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.runtime.watching.dispatch import Dispatch
from tests.scripted import ScriptedRun

NOW_MS = time.time_ns() // 1_000_000  # of the keys that a run has
Publish = Callable[[Controller], Awaitable[Receipt]]


SEED_OPERATIONS: list[tuple[Publish, dict[str, object]]] = [
    (
        lambda c: c.germinate("s0", site="head", blueprint="lora", rank=4),
        {"operation": "SEED_OP_GERMINATE", "site": "head", "blueprint_id": "lora", "parameters": {"rank": 4.0}},
    ),
    (lambda c: c.start_training("s0"), {"operation": "SEED_OP_START_TRAINING"}),
    (
        lambda c: c.start_grafting("s0", steps=60, alpha=0.5, curve="linear"),
        {
            "operation": "SEED_OP_START_GRAFTING",
            "parameters": {"steps": 60.0, "alpha": 0.5},
            "alpha_curve": "ALPHA_CURVE_LINEAR",
        },
    ),
    (
        lambda c: c.set_alpha_target("s0", alpha=0.75, steps=10, curve="sigmoid"),
        {
            "operation": "SEED_OP_SET_ALPHA_TARGET",
            "parameters": {"steps": 10.0, "alpha": 0.75},
            "alpha_curve": "ALPHA_CURVE_SIGMOID",
        },
    ),
    (lambda c: c.stabilize("s0"), {"operation": "SEED_OP_STABILIZE"}),
    (lambda c: c.evaluate("s0"), {"operation": "SEED_OP_EVALUATE"}),
    (lambda c: c.fossilize("s0"), {"operation": "SEED_OP_FOSSILIZE"}),
    (
        lambda c: c.start_grafting("s0", auto=1),
        {
            "operation": "SEED_OP_START_GRAFTING",
            "parameters": {"steps": 100.0, "alpha": 1.0, "auto": 1.0},
            "alpha_curve": "ALPHA_CURVE_COSINE",
        },
    ),
    (lambda c: c.fossilize("s0", auto=0), {"operation": "SEED_OP_FOSSILIZE", "parameters": {"auto": 0.0}}),
    (lambda c: c.reset("s0", auto=1), {"operation": "SEED_OP_RESET", "parameters": {"auto": 1.0}}),
    (lambda c: c.cull("s0"), {"operation": "SEED_OP_CULL"}),
    (lambda c: c.cancel("s0"), {"operation": "SEED_OP_CANCEL"}),
    (lambda c: c.reset("s0"), {"operation": "SEED_OP_RESET"}),
    (lambda c: c.terminate("s0"), {"operation": "SEED_OP_TERMINATE"}),
]
RUN_OPERATIONS: list[tuple[Publish, str, dict[str, object]]] = [
    (
        lambda c: c.adjust_optimizer(lr=0.01, release=["momentum"]),
        "optimizer_adjustment",
        {"optimizer_id": "host", "hyperparameters": {"lr": 0.01}, "release": ["momentum"]},
    ),
    (
        lambda c: c.circuit_breaker("s0", state="open", rationale="odd"),
        "circuit_breaker",
        {"seed_id": "s0", "desired_state": "BREAKER_OPEN", "rationale": "odd"},
    ),
    (lambda c: c.pause(), "pause_command", {}),
    (lambda c: c.pause("s0"), "pause_command", {"seed_id": "s0"}),
    (lambda c: c.resume(), "pause_command", {"resume": True}),
    (
        lambda c: c.emergency(level="halt", reason="smoke"),
        "emergency_command",
        {"level": "EMERGENCY_HALT", "reason": "smoke"},
    ),
    (lambda c: c.rollback(step=1000, reason="worse"), "rollback_command", {"target_step": "1000", "reason": "worse"}),
    (
        lambda c: c.prune(pb.StructuralPruningResponse(request_id="r", rollback_required=True)),
        "pruning_masks",
        {"request_id": "r", "rollback_required": True},
    ),
]
OPTIMIZER_OPERATIONS: list[tuple[Publish, dict[str, object]]] = [
    (lambda c: c.initialize_host(), {"command_type": "OPTIMIZER_COMMAND_INITIALIZE_HOST", "optimizer_id": "host"}),
    (
        lambda c: c.create_seed_optimizer("s0", lr=0.5, weight_decay=0.25),
        {
            "command_type": "OPTIMIZER_COMMAND_CREATE_SEED",
            "optimizer_id": "s0",
            "hyperparameters": {"lr": 0.5, "weight_decay": 0.25},
        },
    ),
    (
        lambda c: c.grant_steps("s0", num_steps=7, expected_step=9, grad_clip_norm=1.5),
        {
            "command_type": "OPTIMIZER_COMMAND_STEP",
            "optimizer_id": "s0",
            "num_steps": "7",
            "expected_step": "9",
            "grad_clip_norm": 1.5,
        },
    ),
    (
        lambda c: c.reset_optimizer_state("s0", generation=2),
        {"command_type": "OPTIMIZER_COMMAND_RESET_STATE", "optimizer_id": "s0", "optimizer_generation": 2},
    ),
    (
        lambda c: c.register_teacher(digest="ab" * 32),
        {"command_type": "OPTIMIZER_COMMAND_REGISTER_TEACHER", "optimizer_id": "host", "teacher_digest": "ab" * 32},
    ),
]


@pytest.mark.parametrize(("publish", "expected"), SEED_OPERATIONS)
async def test_each_seed_operation_is_sealed_as_the_message_that_says_it(
    run: ScriptedRun, controller: Controller, publish: Publish, expected: dict[str, object]
) -> None:
    receipt = await publish(controller)

    [opened] = await run.received()
    said = MessageToDict(opened.message, preserving_proto_field_name=True)

    assert said["seed_command"] == {"seed_id": "s0", **expected}
    assert said["command_type"] == "COMMAND_SEED"
    assert (said["command_id"], opened.entry_id) == (receipt.command_id, receipt.entry_id)


@pytest.mark.parametrize(("publish", "field", "expected"), RUN_OPERATIONS)
async def test_each_operation_on_the_run_is_sealed_as_the_message_that_says_it(
    run: ScriptedRun, controller: Controller, publish: Publish, field: str, expected: dict[str, object]
) -> None:
    await publish(controller)

    [opened] = await run.received()

    assert MessageToDict(opened.message, preserving_proto_field_name=True)[field] == expected
    assert opened.header.role is Role.CONTROLLER


@pytest.mark.parametrize(("publish", "expected"), OPTIMIZER_OPERATIONS)
async def test_each_optimizer_command_is_sealed_by_the_role_that_owns_optimizers(
    run: ScriptedRun, controller: Controller, publish: Publish, expected: dict[str, object]
) -> None:
    receipt = await publish(controller)

    [opened] = await run.received("optimizer")
    said = MessageToDict(opened.message, preserving_proto_field_name=True)

    assert said == {"version": 1, "command_id": receipt.command_id, **expected}
    assert opened.header.role is Role.OPTIMIZER


async def test_a_command_that_is_given_a_time_is_sealed_with_its_deadline(
    run: ScriptedRun, controller: Controller
) -> None:
    bounded = controller.within(2500.5)
    await bounded.cull("s0")
    await bounded.grant_steps("s0")
    await controller.cull("s0")

    soon, late = await run.received(count=2)
    [lease] = await run.received("optimizer")

    for opened in (soon, lease):
        assert opened.header.deadline_kind is DeadlineKind.TIME_NS
        assert opened.header.deadline - opened.header.issued_at_ns == pytest.approx(2500.5e9, abs=60e9)
    assert late.header.deadline_kind is DeadlineKind.NONE
    told = [m.timeout_ms for each in (soon, late) if isinstance(m := each.message, pb.AdaptationCommand)]
    assert told == [2_500_500, 0]


async def test_a_command_that_says_its_own_time_is_bound_by_it(run: ScriptedRun, controller: Controller) -> None:
    command = commands.pause("", resume=False)
    command.timeout_ms = 700_000

    await controller.publish(command)

    [opened] = await run.received()
    assert opened.header.deadline_kind is DeadlineKind.TIME_NS
    assert opened.header.deadline - opened.header.issued_at_ns == pytest.approx(700e9, abs=60e9)


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0001, 4294968.0, float("nan"), float("inf")])
async def test_a_time_that_no_command_can_carry_is_refused(controller: Controller, timeout_s: float) -> None:
    with pytest.raises(SettingError, match=r"timeout_s is .*; expected seconds from 0.001 to 4294967"):
        controller.within(timeout_s)


@pytest.mark.parametrize(
    ("publish", "said"),
    [
        (lambda c: c.germinate("s0", site="head", blueprint="lora", rank="4"), "rank is '4'; expected a number"),
        (lambda c: c.start_training("s0", auto=None), "auto is not set; expected a number"),
        (lambda c: c.start_grafting("s0", steps="60"), "steps is '60'; expected a number"),
        (lambda c: c.set_alpha_target("s0", alpha="1"), "alpha is '1'; expected a number"),
        (lambda c: c.adjust_optimizer(lr="0.1"), "lr is '0.1'; expected a number"),
        (lambda c: c.structural_pruning(most="0.3"), "most is '0.3'; expected a number"),
        (lambda c: c.create_seed_optimizer("s0", lr=[0.1]), "lr is [0.1]; expected a number"),
        (lambda c: c.grant_steps("s0", grad_clip_norm="1"), "grad_clip_norm is '1'; expected a number"),
        (lambda c: c.grant_steps("s0", num_steps="9"), "num_steps is '9'; expected a number"),
        (lambda c: c.rollback(step=2.5), "step is 2.5; expected a whole number from 0 up, below 2**63"),
        (
            lambda c: c.within("3").cull("s0"),
            "timeout_s is '3'; expected seconds from 0.001 to 4294967, or 0 for no end",
        ),
        (lambda c: c.germinate(3, site="head", blueprint="lora"), "seed is 3; expected text"),
        (
            lambda c: c.germinate("a b\nc", site="head", blueprint="lora"),
            "seed is 'a b\\nc'; expected a name of printable characters",
        ),
    ],
)
async def test_what_no_command_can_carry_is_refused_by_its_name(
    controller: Controller, publish: Publish, said: str
) -> None:
    with pytest.raises(SettingError) as refused:
        await publish(controller)

    assert str(refused.value) == said


async def test_a_judge_that_is_late_refuses_what_was_given_a_time(run: ScriptedRun) -> None:
    sealed: list[bytes] = []

    async def keep(stream: str, data: bytes) -> str:
        sealed.append(data)
        return f"{NOW_MS}-0"

    keyring = run.master.derive(run.run_id, [Role.CONTROLLER, Role.OPTIMIZER])
    dispatch = Dispatch(run.run_id, keyring, "controller", keep, clock_ns=lambda: NOW_MS * 1_000_000)
    await dispatch.send(commands.pause("", resume=False), timeout_ms=500)
    opener = Opener(keyring, guard=None, accept=[Domain.COMMAND])

    assert opener.open(sealed[0], f"{NOW_MS}-0", NOW_MS + 500)
    with pytest.raises(RefusedError) as refused:
        opener.open(sealed[0], f"{NOW_MS}-0", NOW_MS + 600)

    assert refused.value.reason == pb.ReasonCode.REASON_PAST_DEADLINE
