"""Two ranks that a script steers: what is decided in the lives of two seeds, and what they say meanwhile."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from esper.leyline import contracts as pb
from tests.faults.processes import Running
from tests.seed_kit import Op
from tests.session_kit import Command, on_seed, own_optimizer
from tests.system.scripted import Script

Stage = pb.SeedLifecycleStage
Decision = tuple[int, list[Command], dict[str, Any]]

ROSTER = ["worker-0", "worker-1"]
SEEDS = {"s0": {"site": "body", "blueprint_id": "mlp"}, "s1": {"site": "head", "blueprint_id": "lora"}}
GERMINATE, TRAIN, GRAFT, STABILIZE, EVALUATE, SNAPSHOT, FOSSILIZE, ROLL_BACK, AGAIN, PAUSE, END = (
    *(3, 5, 36, 66, 87, 109, 112, 135, 140, 165),
    175,
)


def command(kind: pb.CommandType, name: str, **body: Any) -> pb.AdaptationCommand:
    priority = pb.MessagePriority.MESSAGE_PRIORITY_NORMAL
    return pb.AdaptationCommand(version=1, command_id=name, command_type=kind, priority=priority, **body)


def both(operation: pb.SeedOperation, **fields: Any) -> list[Command]:
    return [on_seed(operation, seed_id, **fields) for seed_id in SEEDS]


def decide(script: Script, round_: int, step: int, *commands: Command, **fields: Any) -> list[str]:
    entries = [
        (stream, script.publish(stream, each))
        for each in commands
        for stream in ["commands" if isinstance(each, pb.AdaptationCommand) else "optimizer"]
    ]
    script.commit(round_, step, *entries, **fields)
    return [entry for _, entry in entries]


def decisions() -> list[Decision]:
    """All up to the pause: the step, the commands, and what else the commit says."""
    rollback = command(
        pb.CommandType.COMMAND_ROLLBACK, "back", rollback_command=pb.RollbackCommand(target_step=SNAPSHOT)
    )
    pause = command(pb.CommandType.COMMAND_PAUSE, "pause", pause_command=pb.PauseCommand())
    rates = [own_optimizer(seed_id, 0.02) for seed_id in SEEDS]
    germinate = [on_seed(Op.SEED_OP_GERMINATE, seed_id, **fields) for seed_id, fields in SEEDS.items()]
    decided: list[Decision] = [
        (GERMINATE, [*germinate], {}),
        (TRAIN, [*both(Op.SEED_OP_START_TRAINING), *rates], {}),
        (GRAFT, both(Op.SEED_OP_START_GRAFTING, parameters={"steps": 5, "alpha": 0.25}), {}),
        (STABILIZE, both(Op.SEED_OP_STABILIZE), {}),
        (EVALUATE, both(Op.SEED_OP_EVALUATE), {}),
        (SNAPSHOT, [], {"snapshot": True}),
        (FOSSILIZE, both(Op.SEED_OP_FOSSILIZE), {}),
        (ROLL_BACK, [rollback], {"snapshot_step": SNAPSHOT}),
        (AGAIN, both(Op.SEED_OP_FOSSILIZE), {}),
        (PAUSE, [pause], {}),
    ]
    for number, (_, commands, _) in enumerate(decided):
        for index, each in enumerate(commands):
            each.command_id += f"-{number}.{index}"
    return decided


def messages(script: Script, stream: str) -> list[Any]:
    return [opened.message for opened in script.read(stream)]


def wait_until(ranks: list[Running], reached: Any) -> None:
    """Look now and then, for as long as both ranks live."""
    while not reached():
        with suppress(subprocess.TimeoutExpired):
            ranks[0].wait(0.2)
        assert [rank.poll() for rank in ranks] == [None, None], "a rank ended before its time"


def last_words(directory: Path) -> list[str]:
    return [path.read_text()[-2000:] for path in sorted(directory.glob("*.log"))]
