"""Commands that move a seed from stage to stage."""

from __future__ import annotations

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.bench.work.seeds.grafts import Nursery
from esper.bench.work.seeds.grown import grow
from esper.kasmina.seeds.seed import Moment, Seed
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import EMBARGOED, GERMINATED, TRAINING, operation_name

Op = pb.SeedOperation
Reason = pb.ReasonCode
# Stage and reason that each lands in.
EXPECTED = {
    Op.SEED_OP_START_TRAINING: (TRAINING, Reason.REASON_NONE),
    Op.SEED_OP_START_GRAFTING: (TRAINING, Reason.REASON_GATE_FAILED),
    Op.SEED_OP_CULL: (EMBARGOED, Reason.REASON_NONE),
}
OPERATIONS = {operation_name(operation): operation for operation in EXPECTED}
BEFORE = {Op.SEED_OP_START_TRAINING: GERMINATED, Op.SEED_OP_START_GRAFTING: TRAINING}


class Move:
    """One command on a seed that stands where it is legal. RuntimeError where it comes to anything else."""

    def __init__(self, operation: pb.SeedOperation) -> None:
        self.operation, self.nursery = operation, Nursery()
        self.seed: Seed | None = None

    def prepare(self) -> None:
        """The seed back into its stage; a culled one is made anew."""
        if self.seed is None or self.operation == Op.SEED_OP_CULL:
            self.nursery.next()
            self.seed = grow(self.nursery.executor, self.nursery.site, TRAINING)
        stage = BEFORE.get(self.operation)
        if stage is not None:
            self.seed.record(stage, Moment(0, 0))

    def turn(self) -> None:
        command = pb.SeedCommand(seed_id=self.nursery.site, operation=self.operation)
        outcome = self.nursery.executor.apply(command, 1, 0)
        if (outcome.stage, outcome.reason) != EXPECTED[self.operation]:
            raise RuntimeError(f"operation {self.operation} came to stage {outcome.stage}: {outcome.detail}")


def commanded(operation: str) -> Ready:
    move = Move(OPERATIONS[operation])
    return Ready(move.turn, before=move.prepare)


def looked_up() -> Ready:
    """What no transition does without: the table asked, and the answer noted."""
    asked, noted = (GERMINATED, Op.SEED_OP_START_TRAINING), dict[str, Answer]()
    table = {asked: TRAINING}

    def call() -> None:
        noted["stage"] = table[asked]

    return Ready(call, calls=1_000)
