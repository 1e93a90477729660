"""`esper publish prune`, and that every kind of command has a sub-command whose example parses."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from esper.cli import publish
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from tests.cli_kit import called
from tests.pruning_kit import lift, mask, response
from tests.scripted import WORKERS, ScriptedRun

RESERVED = {"SEED_OP_UNKNOWN", "SEED_OP_FINE_TUNE", "COMMAND_UNKNOWN", "OPTIMIZER_COMMAND_UNKNOWN"}


async def pruned(run: ScriptedRun, number: int = 1) -> pb.StructuralPruningResponse:
    """The masks in the command that was published so many-th."""
    message = (await run.received(count=number))[-1].message
    assert isinstance(message, pb.AdaptationCommand)
    return message.pruning_masks


async def asked_and_told(run: ScriptedRun, *options: str) -> tuple[int, str, str]:
    """Half of each layer is to go; the run tells of two."""
    asking = asyncio.create_task(called("publish", "prune", "--ratio", "0.5", *options, "--no-wait", "--run", run.name))
    [opened] = await run.received()
    assert isinstance(opened.message, pb.AdaptationCommand)
    channels = pb.PruningMaskType.PRUNING_MASK_CHANNEL
    worth = [
        pb.ChannelImportance(parameter=name, mask_type=channels, gradient_norm=row, taylor=row, fisher=row)
        for name, row in (("head.weight", [3.0, 1.0, 2.0, 4.0]), ("body.weight", [1.0, 2.0]))
    ]
    told = pb.StructuralPruningRequest(
        request_id=opened.message.structural_pruning.request_id,
        phase=pb.PruningPhase.PRUNING_PHASE_ACTIVE,
        importance=worth,
        num_parts=1,
    )
    beat = pb.Heartbeat(version=1, worker="worker-0", world_size=2, pruning=told)
    await run.say("heartbeats", Role.WORKER, "worker-0", beat)
    await run.apply(opened.message.command_id, opened.entry_id, *WORKERS)
    return await asking


@pytest.mark.parametrize("options", [("--only", "head.weight"), ("--leave", "body.weight")])
async def test_the_least_important_share_is_pruned(run: ScriptedRun, options: tuple[str, str]) -> None:
    status, _, err = await asked_and_told(run, *options)

    assert (status, err) == (0, "")
    assert list((await pruned(run, 2)).pruning_masks) == [mask("head.weight", [1, 2], 4)]


@pytest.mark.parametrize("option", ["--only", "--leave"])
async def test_a_weight_that_the_run_does_not_measure_is_named_with_near_ones(run: ScriptedRun, option: str) -> None:
    status, _, err = await asked_and_told(run, option, "haed.weight")

    known = "one of 2 weights that the run measures, as head.weight, body.weight"
    assert (status, err) == (2, f"esper: {option} is 'haed.weight'; expected {known}\n")


async def test_masks_come_from_a_file_and_the_last_ones_are_lifted(run: ScriptedRun, tmp_path: Path) -> None:
    path = tmp_path / "masks.json"
    path.write_text(
        '{"requestId": "r1", "validationPassed": true, "pruningMasks": '
        '[{"parameter": "head.weight", "maskType": "PRUNING_MASK_CHANNEL", "kept": "DQ==", "numChannels": 4}]}'
    )

    by_file = await called("publish", "prune", "--masks", str(path), "--no-wait", "--run", run.name)
    back = await called("publish", "prune", "--lift", "worse", "--no-wait", "--run", run.name)

    assert (by_file[0], back[0]) == (0, 0), by_file[2] + back[2]
    assert await pruned(run, 1) == response(mask("head.weight", [1], 4))
    lifted = await pruned(run, 2)
    assert (lifted.rollback_required, lifted.rollback_reason) == (True, lift("worse").rollback_reason)


async def test_pruning_is_switched_by_its_phase(run: ScriptedRun) -> None:
    words = ["structural-pruning", "--phase", "disabled", "--param", "accuracy=0.5", "--no-wait"]
    status, _, err = await called("publish", *words, "--run", run.name)

    [opened] = await run.received()
    assert (status, err) == (0, "")
    assert isinstance(opened.message, pb.AdaptationCommand)
    asked = opened.message.structural_pruning
    assert asked.phase == pb.PruningPhase.PRUNING_PHASE_DISABLED
    assert dict(asked.safety_constraints) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "expected one of --ratio, --masks and --lift"),
        ("--ratio 0.3 --lift worse", "expected one of --ratio, --masks and --lift"),
        ("--ratio 1.5", "ratio is 1.5; expected a share from 0 up to 1"),
        ("--ratio 0.3 --criterion size", "expected one of taylor, fisher, gradient_norm"),
        ("--masks /nowhere/masks.json", "expected a file that can be read"),
        ("--masks {odd}", "expected the JSON form of a StructuralPruningResponse"),
    ],
)
async def test_bad_input_is_one_line(run: ScriptedRun, tmp_path: Path, words: str, expected: str) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text('{"masks": 3}')

    status, out, err = await called("publish", "prune", *words.format(odd=odd).split(), "--run", run.name)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_every_example_is_understood() -> None:
    commands = get_command(publish.build()).commands  # type: ignore[attr-defined]  # a group, made of many

    for operation, words in publish.EXAMPLES.items():
        name = operation.replace("_", "-")
        command = commands[name]
        assert f"esper publish {name} {words} " in command.epilog
        command.make_context(name, shlex.split(words))


def test_every_kind_of_command_has_a_sub_command() -> None:
    kinds = {
        "COMMAND_ROLLBACK": "rollback",
        "COMMAND_OPTIMIZER": "adjust_optimizer",
        "COMMAND_CIRCUIT_BREAKER": "circuit_breaker",
        "COMMAND_PAUSE": "pause",
        "COMMAND_EMERGENCY": "emergency",
        "COMMAND_STRUCTURAL_PRUNING": "structural_pruning",
        "COMMAND_PRUNING_MASKS": "prune",
        "COMMAND_SEED": "germinate",
        "OPTIMIZER_COMMAND_INITIALIZE_HOST": "initialize_host",
        "OPTIMIZER_COMMAND_CREATE_SEED": "create_seed_optimizer",
        "OPTIMIZER_COMMAND_STEP": "grant_steps",
        "OPTIMIZER_COMMAND_RESET_STATE": "reset_optimizer_state",
        "OPTIMIZER_COMMAND_REGISTER_TEACHER": "register_teacher",
    }
    seeds = {each: each.removeprefix("SEED_OP_").lower() for each in pb.SeedOperation.keys()}  # noqa: SIM118
    known = {*pb.CommandType.keys(), *pb.OptimizerCommandType.keys(), *pb.SeedOperation.keys()} - RESERVED

    assert {kind for kind, name in (kinds | seeds).items() if name in publish.EXAMPLES} == known
