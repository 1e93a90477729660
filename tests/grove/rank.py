"""One of several ranks: does what it is told before each step, and says what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from esper.kasmina.pruning.units import Key
from esper.kernels.split import own_part
from esper.leyline import contracts as pb
from esper.session import Session
from esper.tolaria.checkpoints.store import TENSORS, step_of
from tests.garden import marks
from tests.garden.course import sums
from tests.garden.ends import hooks
from tests.garden.joined import acted
from tests.garden.marks import Marks, differing
from tests.garden.plan import Act
from tests.garden.teachers import Lesson
from tests.garden.watch import changes_host
from tests.garden.wrong import require
from tests.grove.gradients import Ledger, Seen
from tests.grove.joined import joined
from tests.grove.plan import AS_ONE, Plan, Turn
from tests.grove.script import Script
from tests.grove.sharded import of_all_ranks
from tests.grove.taught import taught_by

FOSSILIZE = pb.SeedOperation.SEED_OP_FOSSILIZE


@dataclass(frozen=True)
class Said:
    """What a rank says after a step, or before its first."""

    step: int
    sums: dict[str, int]  # of all that must be the same on both ranks
    stages: dict[str, tuple[int, str]] = field(default_factory=dict)  # with the blueprint
    requests: list[pb.SeedRequest] = field(default_factory=list)
    held: list[int] = field(default_factory=list)  # steps of snapshots
    sites: list[str] = field(default_factory=list)
    units: dict[Key, int] = field(default_factory=dict)  # that can be pruned, with the number of their parts
    receipts: list[pb.CommandReceipt] = field(default_factory=list)
    gradients: Seen = field(default_factory=dict)
    went: bool = True  # nothing was raised in the step


class Rank:
    """Its script, its session, and a twin of the script for as long as no seed has touched the output."""

    def __init__(self, plan: Plan, rank: int, folder: Path) -> None:
        self.plan, self.rank, self.folder = plan, rank, folder
        self.apart: dist.ProcessGroup = dist.new_group()  # of the twins
        marks.seed_all(plan.seed + (0 if plan.sharing.way == AS_ONE else rank))
        self.num_acts = 0
        self._brings_back: dict[str, int] | None = None
        self.saved: dict[int, dict[str, int]] = {}  # what a checkpoint is to bring back
        self.kept: dict[int, dict[str, int]] = {}  # and a snapshot
        self._torn = set[str]()  # names of checkpoints
        self._begin(resume=False)

    def _begin(self, *, resume: bool) -> None:
        self.script = Script(self.plan, self.rank)
        self.run: Session = joined(self.plan, self.script, self.folder, resume=resume)
        is_alone = resume or self._sums_otherwise() or self._is_without_twin()
        self.twin: Script | None = None if is_alone else self.script.twin(self.apart)
        self._before: Marks = {}

    def said(self, **more: Any) -> Said:
        executor = self.run.executor
        return Said(
            self.run.step_number,
            sums(of_all_ranks(self.script, self._shared())),
            {seed.seed_id: (int(seed.stage), seed.blueprint_id) for seed in executor._known.values()},
            executor.requests(),
            [ref.step for ref in self.run.status.states.refs()],
            executor.sites,
            {key: unit.num_channels for key, unit in self.run.pruning.masks.units.items()},
            **more,
        )

    # -- what is the same on both ------------------------------------------------------------------------------------

    def _shared(self) -> Marks:
        """Everything but buffers, which are of what a rank has seen, and its randomness."""
        named = {name: own_part(each).detach() for name, each in self.script.host.named_parameters()}
        seeds = self.run.executor.seeds
        own = {
            f"{seed_id} {name}"
            for seed_id, seed in seeds.items()
            if seed.module is not None
            for name, _ in seed.module.named_buffers()
        }
        of_seeds = {name: value for name, value in marks.of_seeds(self.run).items() if name not in own}
        lives = {
            f"{report.seed_id} lived": [(each.stage, each.gate, each.passed, each.step) for each in report.history]
            for report in self.run.executor.reports()
        }
        pruned = {f"pruned {key}": value for key, value in self.run.pruning.masks.now().items()}
        host = named | marks.of_optimizer(self.script) | marks.of_groups(self.script)  # type: ignore[arg-type]
        taught = {} if self.plan.taught is None or self.plan.taught.may_fail else taught_by(self.run)
        found = host | of_seeds | lives | pruned | taught
        return plain_zeros(found)

    # -- a turn ------------------------------------------------------------------------------------------------------

    def take(self, turn: Turn) -> Said:
        """Do it."""
        if turn.resumes:
            self._resume(is_torn=self.rank in turn.torn)
        if turn.wraps:
            self.script.wrap()
            self.twin = None
        if self.plan.taught is not None:
            self.plan.taught.arrive(self.run)
        self.num_acts += 1
        act = turn.act if self.rank in turn.prefetching else replace(turn.act, prefetches=None)
        act = replace(act, accuracy=turn.accuracies[self.rank]) if turn.accuracies else act
        self._prunes = bool(self.run.pruning.masks.held[0]) or self.run.pruning._change is not None
        order = acted(self.run, act, self.num_acts)
        self._before, ledger = marks.of_host(self.script), list[Ledger]()  # type: ignore[arg-type]
        violations, began_at = self._violations(), self.run.step_number

        def began() -> None:
            self._began(act, order)
            ledger.append(Ledger(self.script, self.run))

        raised = self.script.step(act.number, self.run, began)
        gradients = ledger[0].close()
        receipts = [] if order is None else self._answered(order)
        violated = self.script.agreed(self._violations() > violations)
        self.twin = None if violated else self.twin
        if self.twin is not None:
            self._compare(self.twin, act.number, raised)
        require(self.run.step_number == began_at + (not raised), f"it stands before {self.run.step_number}")
        return self.said(receipts=receipts, gradients={} if raised else gradients, went=not raised)

    def _resume(self, *, is_torn: bool) -> None:
        """As a new process would, from the newest checkpoint that all have whole."""
        old, at = self.run, self.run.step_number
        newest = self._newest(is_torn=is_torn)
        self._begin(resume=True)
        step = self.run.step_number
        require(step == newest, f"resumed before step {step}; the newest that all have is of {newest}")
        self._brings_back = self.saved.get(step)
        self.saved = {each: kept for each, kept in self.saved.items() if each <= step}
        self.kept = {}
        old.executor.detach()
        require(at >= step, "resumed beyond where it was")

    def _newest(self, *, is_torn: bool) -> int:
        """Step of the newest checkpoint that all have whole; this rank's own newest is torn if one of all is left."""
        assert self.run.checkpoints is not None
        standing = self.run.checkpoints.store.standing()
        newest = {step_of(each): each.name for each in reversed(standing)}  # of one step only the last one made counts
        whole = [step for step, name in newest.items() if name not in self._torn]
        mine = standing[0].name if is_torn and standing else ""
        steps = self._common([step for step in whole if newest[step] != mine])
        if not steps:
            return max(self._common(whole), default=1)
        if mine:
            blob = standing[0] / TENSORS
            blob.write_bytes(blob.read_bytes()[:-1])
            self._torn.add(mine)
        return max(steps)

    def _common(self, steps: list[int]) -> set[int]:
        said: list[list[int]] = [[]] * self.plan.more.world_size
        dist.all_gather_object(said, steps, self.apart)
        return set[int].intersection(*map(set, said))

    def _began(self, act: Act, order: pb.CommitOrder | None) -> None:
        if self._brings_back is not None:
            odd = otherwise(sums(self._shared()), self._brings_back)
            odd = [each for each in odd if not each.startswith(("own ", "teacher"))]  # the script's own matter; arrived
            require(not odd, f"a checkpoint did not bring back {odd}")
            self._brings_back = None
        if act.goes_back in self.kept:
            odd = [name for name in otherwise(sums(self._shared()), self.kept[act.goes_back]) if not gone(self, name)]
            require(not odd, f"a rollback did not put back {odd}")
            self.kept = {step: kept for step, kept in self.kept.items() if step <= act.goes_back}
        changes = self._changes_host(order)
        if not changes:
            odd = differing(marks.of_host(self.script), self._before)  # type: ignore[arg-type]
            require(not odd, f"orders changed {odd}")
        if changes or self.touched():
            self.twin = None
        if self._averages_otherwise() or self._sums_otherwise() or self._is_without_twin():
            self.twin = None
        elif self.twin is None and not self.touched():
            self.twin = self.script.twin(self.apart)
        step = self.run.step_number
        if self.run.checkpoints is not None and self.run.checkpoints.due(step):
            self.saved[step] = sums(self._shared())
        if act.snapshot and not (act.commands or act.requests):
            self.kept[step] = sums(self._shared())
            self.kept = dict([*self.kept.items()][-2:])
        self._randomness = marks.randomness()

    def _averages_otherwise(self) -> bool:
        """Whether a script without Esper would round otherwise: a fossil's mean is taken of each backward."""
        return self.plan.sharing.way.startswith("plain") and bool(self.run.executor._fossils.modules())

    def _is_without_twin(self) -> bool:
        """A split host with a fossil in it: no other can be made."""
        return self.plan.shards is not None and bool(self.run.executor._fossils.modules())

    def _sums_otherwise(self) -> bool:
        """Whether another DDP would round otherwise: three numbers are added in an order that hangs on the buckets."""
        return self.plan.more.world_size > 2 and self.plan.sharing.is_ddp

    def _violations(self) -> int:
        return sum(seed.violations for seed in self.run.executor.seeds.values() if seed.module is not None)

    def _changes_host(self, order: pb.CommitOrder | None) -> bool:
        held = self._prunes or bool(self.run.pruning.masks.held[0])
        if order is None:
            return held
        folds = any(each.operation == FOSSILIZE for each in order.commit.requests)
        return held or folds or any(map(changes_host, order.commands))

    def touched(self) -> bool:
        """Whether the host's own training may be another than without Esper."""
        living = [each for each in self.run.executor.seeds.values() if each.module is not None]
        blends = any(each.blends and not each.paused and float(each.alpha) for each in living)
        taught = isinstance(self.script.lesson, Lesson) and self.script.lesson.touches
        return bool(self.run.pruning.masks.held[0] or self.run.optimizers._host.overrides.values or blends or taught)

    def _compare(self, twin: Script, number: int, raised: str) -> None:
        after = marks.randomness()
        marks.put_randomness(self._randomness)
        alone = twin.step(number)
        require(raised == alone, f"{raised or 'nothing'} was raised, and {alone or 'nothing'} without Esper")
        mine, its = marks.of_all(self.script) | after, marks.of_all(twin)  # type: ignore[arg-type]
        odd = differing(mine, its)
        require(not odd, f"not as without Esper: {odd}")
        marks.put_randomness(after)

    def _answered(self, order: pb.CommitOrder) -> list[pb.CommandReceipt]:
        answer = self.run.exchange.boundary.on_commit(order)
        require(answer is not None, "a commit was not carried out")
        assert answer is not None
        return list(answer.receipts)

    def end(self) -> Said:
        """Close the run."""
        self.run.close()
        if isinstance(self.script.lesson, Lesson):
            self.script.lesson.close()
        left = [*hooks(self.script)]  # type: ignore[arg-type]
        require(not left, f"hooks are left: {left}")
        named = {name: own_part(each).detach() for name, each in self.script.host.named_parameters()}
        closed = named | marks.of_optimizer(self.script)  # type: ignore[arg-type]
        return Said(self.run.step_number, sums(of_all_ranks(self.script, plain_zeros(closed))))


def plain_zeros(found: Marks) -> Marks:
    """Zeros of either sign are equal, as in digests."""
    return {
        name: value + 0.0 if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in found.items()
    }


def gone(rank: Rank, name: str) -> bool:
    """Whether this is of a seed that no rollback brings back, or of what it does not rewind."""
    if name.startswith(("group ", "own ", "teacher")) or name.endswith(" lived"):
        return True
    seed = rank.run.executor.seeds.get(name.split()[0])
    first = name.split()[0]
    return (seed is None and "." not in first and first not in ("optimizer", "pruned")) or (
        seed is not None and seed.module is None
    )


def otherwise(now: dict[str, int], then: dict[str, int]) -> list[str]:
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def serve(plan: Plan, rank: int, folder: Path, line: Connection) -> None:
    """Say, hear a turn, and take it, until it is the last."""
    life = Rank(plan, rank, folder)
    line.send(life.said())
    while not (turn := line.recv()).ends:
        line.send(life.take(turn))
    line.send(life.end())
