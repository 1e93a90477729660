"""A process killed between a rollback and the next checkpoint: what was commanded before both still holds."""

from __future__ import annotations

from pathlib import Path

from esper.bus.names import new_run_id
from esper.leyline import contracts as pb
from tests.seed_kit import Op
from tests.session_kit import Command, on_seed, own_optimizer
from tests.system.processes import Start
from tests.system.resumed_kit import Seen, host_rate, num_heartbeats, start
from tests.system.scripted import Script, receipts

KEPT, CULLED, BACK, END = 9, 12, 14, 18  # a checkpoint; a cull and a rate; the rollback and a pause; the last step
NUM_COMMANDS = 7


def test_a_cull_and_a_rate_that_a_rollback_left_standing_hold_in_the_process_after_it(
    redis_url: str, tmp_path: Path, ranks: Start
) -> None:
    def lived(name: str, *, dies: bool) -> Seen:
        (tmp_path / name).mkdir()
        script = Script(redis_url, new_run_id(name), tmp_path / name)
        rank = start(ranks, script, tmp_path / name / "run", 3, END, "begin")
        rank.until(lambda: num_heartbeats(script) > 0)
        _steer(script)
        rank.until(lambda: len(receipts(script)) == NUM_COMMANDS)
        if dies:  # it stands before the rollback's step, and makes no checkpoint there until it is let go
            rank.kill()
            rank = start(ranks, script, tmp_path / name / "run", 0, END, "resume")
        _decide(script, 4, BACK, _paused(resume=True))
        seen = rank.said()
        assert len({each.command_id for each in receipts(script)}) == len(receipts(script))
        return seen

    through, resumed = lived("through", dies=False), lived("killed", dies=True)

    assert min(map(int, resumed)) == KEPT
    assert [resumed[str(step)] for step in range(BACK, END + 1)] == [
        through[str(step)] for step in range(BACK, END + 1)
    ]
    assert [set(resumed[str(step)][1].values()) for step in (CULLED - 1, BACK)] == [
        {"SEED_STAGE_TRAINING"},
        {"SEED_STAGE_EMBARGOED"},
    ]


def _steer(script: Script) -> None:
    germinate = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    _decide(script, 1, 3, germinate, own_optimizer("s0", 0.02), on_seed(Op.SEED_OP_START_TRAINING))
    _decide(script, 2, CULLED, on_seed(Op.SEED_OP_CULL), host_rate())
    back = pb.AdaptationCommand(
        version=1,
        command_id="back",
        command_type=pb.CommandType.COMMAND_ROLLBACK,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        rollback_command=pb.RollbackCommand(target_step=KEPT),
    )
    _decide(script, 3, BACK, back, _paused())


def _paused(*, resume: bool = False) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(
        version=1,
        command_id="resume" if resume else "pause",
        command_type=pb.CommandType.COMMAND_PAUSE,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        pause_command=pb.PauseCommand(resume=resume),
    )


def _decide(script: Script, round_: int, step: int, *commands: Command) -> None:
    entries = []
    for each in commands:
        stream = "commands" if isinstance(each, pb.AdaptationCommand) else "optimizer"
        entries.append((stream, script.publish(stream, each)))
    script.commit(round_, step, *entries, snapshot_step=KEPT)
