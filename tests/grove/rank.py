"""One of several ranks: does what it is told before each step, and says what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden import marks
from tests.garden.course import sums
from tests.garden.ends import hooks
from tests.garden.joined import acted
from tests.garden.marks import Marks, differing
from tests.garden.plan import Act
from tests.garden.watch import changes_host
from tests.garden.wrong import require
from tests.grove.gradients import Ledger, Seen
from tests.grove.joined import joined
from tests.grove.plan import AS_ONE, Plan, Turn
from tests.grove.script import Script

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
        self._begin(resume=False)

    def _begin(self, *, resume: bool) -> None:
        self.script = Script(self.plan, self.rank)
        self.run: Session = joined(self.plan, self.script, self.folder, resume=resume)
        self.twin: Script | None = None if resume or self._sums_otherwise() else self.script.twin(self.apart)
        self._before: Marks = {}

    def said(self, **more: Any) -> Said:
        executor = self.run.executor
        return Said(
            self.run.step_number,
            sums(self._shared()),
            {seed.seed_id: (int(seed.stage), seed.blueprint_id) for seed in executor._known.values()},
            executor.requests(),
            [ref.step for ref in self.run.portrait.states.refs()],
            executor.sites,
            **more,
        )

    # -- what is the same on both ------------------------------------------------------------------------------------

    def _shared(self) -> Marks:
        """Everything but buffers, which are of what a rank has seen, and its randomness."""
        named = {name: each.detach() for name, each in self.script.host.named_parameters()}
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
        return host | of_seeds | lives | pruned

    # -- a turn ------------------------------------------------------------------------------------------------------

    def take(self, turn: Turn) -> Said:
        """Do it."""
        if turn.resumes:
            self._resume()
        if turn.wraps:
            self.script.wrap()
            self.twin = None
        self.num_acts += 1
        act = turn.act if self.rank in turn.prefetching else replace(turn.act, prefetches=None)
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

    def _resume(self) -> None:
        """As a new process would, from the newest checkpoint."""
        old, at = self.run, self.run.step_number
        self._begin(resume=True)
        step = self.run.step_number
        require(step in self.saved or step == 1, f"resumed before step {step}; checkpoints were of {[*self.saved]}")
        self._brings_back = self.saved.get(step)
        self.saved = {each: kept for each, kept in self.saved.items() if each <= step}
        self.kept = {}
        old.executor.detach()
        require(at >= step, "resumed beyond where it was")

    def _began(self, act: Act, order: pb.CommitOrder | None) -> None:
        if self._brings_back is not None:
            odd = otherwise(sums(self._shared()), self._brings_back)
            odd = [each for each in odd if not each.startswith("own ")]  # the script's own matter
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
        if self._averages_otherwise() or self._sums_otherwise():
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

    def _sums_otherwise(self) -> bool:
        """Whether another DDP would round otherwise: three numbers are added in an order that hangs on the buckets."""
        return self.plan.more.world_size > 2 and self.plan.sharing.is_ddp

    def _violations(self) -> int:
        return sum(seed.violations for seed in self.run.executor.seeds.values() if seed.module is not None)

    def _changes_host(self, order: pb.CommitOrder | None) -> bool:
        held = bool(self.run.pruning.masks.held[0])
        if order is None:
            return held
        folds = any(each.operation == FOSSILIZE for each in order.commit.requests)
        return held or folds or any(map(changes_host, order.commands))

    def touched(self) -> bool:
        """Whether the host's own training may be another than without Esper."""
        living = [each for each in self.run.executor.seeds.values() if each.module is not None]
        blends = any(each.blends and not each.paused and float(each.alpha) for each in living)
        return bool(self.run.pruning.masks.held[0] or self.run.optimizers._host.overrides.values or blends)

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
        left = [*hooks(self.script)]  # type: ignore[arg-type]
        require(not left, f"hooks are left: {left}")
        named = {name: each.detach() for name, each in self.script.host.named_parameters()}
        closed = named | marks.of_optimizer(self.script)  # type: ignore[arg-type]
        return Said(self.run.step_number, sums(closed))


def gone(rank: Rank, name: str) -> bool:
    """Whether this is of a seed that no rollback brings back, or of what it does not rewind."""
    if name.startswith(("group ", "own ")) or name.endswith(" lived"):
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
