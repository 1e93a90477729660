"""What a rank puts on record of itself: that it began, and with what; what became of requests; how it ended."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

import torch

from esper.leyline import contracts as pb
from esper.session.batches import LoopPosition
from esper.session.numerics import numerics
from esper.session.rank_status import RankStatus
from esper.tolaria.state.digest import parameter_digest
from esper.version import running

UNKNOWN_BATCHES = (
    "its batches are not known to be a function of the step: "
    "they came neither from run.batches() nor from a loader given to attach()"
)


def began(status: RankStatus, step: int, epoch: int, *, resumed: bool) -> pb.RunRecord:
    """Before `step`, the first of this process; `resumed`: from a checkpoint."""
    device = next((parameter.device.type for parameter in status.model.parameters()), "cpu")
    return _record(
        status,
        began=pb.RunBegan(
            first_step=step,
            epoch=epoch,
            resumed=resumed,
            parameter_digest=parameter_digest(status.weights()),
            part_digest=parameter_digest(own.items()) if (own := status.parts()) else b"",
            num_threads=torch.get_num_threads(),
            esper_version=running(),
            torch_version=torch.__version__,
            python_version=platform.python_version(),
            machine=f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            device=device,
            script=sys.orig_argv[1:],
            rounds_again=sorted(status.boundary.again),
            numerics=numerics(),
        ),
    )


def judged(status: RankStatus, round_: int, outcomes: Sequence[pb.CommandReceipt]) -> pb.RunRecord:
    """What became of the requests of a round's commit."""
    return _record(status, judged=pb.RoundJudged(round=round_, outcomes=outcomes))


def ended(status: RankStatus, report: pb.WorkerReport, not_replayable: str, position: LoopPosition) -> pb.RunRecord:
    """The last words, what has led there, and why a replay of them can't be, if it can't."""
    return _record(
        status,
        ended=pb.RunEnded(
            report=report,
            round_applied=status.boundary.round_applied,
            not_replayable=not_replayable or position.odd,
            num_orders=position.orders.num,
            orders_digest=position.orders.digest,
        ),
    )


def _record(
    status: RankStatus,
    *,
    began: pb.RunBegan | None = None,
    judged: pb.RoundJudged | None = None,
    ended: pb.RunEnded | None = None,
) -> pb.RunRecord:
    identity = status.identity
    return pb.RunRecord(
        version=1,
        worker=identity.name,
        incarnation=status.rows.incarnation,
        rank=identity.rank,
        world_size=identity.world_size,
        began=began,
        judged=judged,
        ended=ended,
    )
