"""One life: a script that trains while orders come before its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from esper.leyline import contracts as pb
from tests.garden import further, marks, wide
from tests.garden.course import HYPERPARAMETERS, Course, acts_again, answers, found, otherwise
from tests.garden.fuses import Fuses
from tests.garden.joined import acted, joined
from tests.garden.loops import Loop
from tests.garden.odd import HARMFUL
from tests.garden.orders import Orders, prunable
from tests.garden.plan import Act, Plan
from tests.garden.resumed import Resumed
from tests.garden.teachers import Faculty
from tests.garden.watch import Watch
from tests.garden.wide_orders import WideOrders
from tests.garden.wrong import require
from tests.session_kit import Command

FOSSILIZE = pb.SeedOperation.SEED_OP_FOSSILIZE


def fossilized(command: Command) -> str:
    """The seed that a command would make a part of the model."""
    fossilizes = isinstance(command, pb.AdaptationCommand) and command.seed_command.operation == FOSSILIZE
    return command.seed_command.seed_id if isinstance(command, pb.AdaptationCommand) and fossilizes else ""


def is_lifting(command: Command) -> bool:
    return isinstance(command, pb.AdaptationCommand) and command.pruning_masks.rollback_required


class Life:
    """Draws an act for each step, and carries it out under the eyes of a Watch."""

    def __init__(self, plan: Plan, folder: Path | None = None, *, alone: bool = True) -> None:
        """One that is not alone lives in turn with another in this process."""
        self.plan, self.folder, self.alone = plan, folder, alone
        marks.seed_all(plan.seed)
        self.loop = Loop(plan.host, plan.manner, plan.habits)
        self.run = joined(plan, self.loop, folder)
        self.watch = self._watching()
        self.acts: list[Act] = []
        self.course = Course()
        self._again: deque[tuple[Act, dict[str, int]]] = deque()  # acts that are done again, with what came of them
        dice = Random(-1 - plan.seed)
        weights = prunable(self.loop.host) if dice.random() < 0.2 else []
        self._num_attached = 1
        self._dice, self._orders = dice, Orders(dice, self.run.executor.sites, plan.blueprints, weights)
        self._is_eager = dice.choice([0.3, 0.6, 1.0])
        self._wide = self._wide_orders() if plan.seed >= wide.FIRST_SEED else None
        if plan.wide.compiles == "model":
            self.loop.host.compile(backend=plan.wide.backend)

    def _watching(self) -> Watch:
        return Watch(self.loop, self.run, Fuses(self.run) if self.plan.seed >= further.FIRST_SEED else None)

    def _wide_orders(self) -> WideOrders:
        plan, masks = self.plan, self.run.pruning.masks
        digests = []
        if plan.wide.teaches:
            assert self.folder is not None
            faculty = Faculty(plan.host, plan.wide, self.folder / "teachers", self.loop.host)
            digests = [*faculty.digests * 4, *faculty.bad]
        units = {key: unit.num_channels for key, unit in masks.units.items()}
        return WideOrders(Random(f"orders {plan.seed}"), plan.wide, self._orders, units, digests)

    def live(self) -> None:
        """Wrong where something is not as it must be."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[int]:
        """The same, a step at a time."""
        for number in range(1, self.plan.num_steps + 1):
            if not self._again:
                self._go_back_and_again()
            act, sums = self._again.popleft() if self._again else (self.draw(number), None)
            self.act(act)
            self._compare(sums)
            if self.plan.habits.attaches_again and self._dice.random() < 0.1:
                self._attach_again()
            yield number
        if self.folder is not None and self.run.checkpoints is not None and self._is_repeatable():
            again = Resumed(self.plan, self.folder, self.run.checkpoints.store, self.watch.saved, self.course.stages)
            again.live()
        self.watch.closes()

    def _go_back_and_again(self) -> None:
        """Where a snapshot is fit for it, now and then, do again what was done since."""
        manner = self.plan.manner
        stays = manner.scheduler or manner.scales or manner.zeroes_first or manner.num_passes > 1
        if not self._is_repeatable() or stays or self.plan.steps_per_epoch:
            return  # of these no rollback puts anything back
        for step in self.watch.kept:
            stages = self.course.again(step, self.run.step_number)
            if stages and self._dice.random() < 0.7:
                acts = acts_again(stages, step)
                self._again.extend((act, stage.sums) for act, stage in zip(acts, stages, strict=True))
                return

    def _is_repeatable(self) -> bool:
        """A new process, or what is done again, finds what this one did."""
        odd = self.watch.timed or self.plan.habits.is_forgetful or self._num_attached > 1
        return self.alone and not odd and self.plan.wide.is_awaited

    def _attach_again(self) -> None:
        """Close the run, and begin another with the model as it is."""
        self.watch.closes()
        self._num_attached += 1
        folder = None if self.folder is None else self.folder / str(self._num_attached)
        self.run = joined(self.plan, self.loop, folder)
        self.watch, self.course = self._watching(), Course()
        self._again.clear()

    def _compare(self, sums: dict[str, int] | None) -> None:
        if sums is not None:
            but = (*HYPERPARAMETERS, *(["answer "] if self.acts[-1].goes_back else []))
            odd = otherwise(self.course.stages[-1].sums, sums, but=but)
            require(not odd, f"done again it came otherwise: {odd}")

    def draw(self, number: int) -> Act:
        """For the next step, given the stages that seeds are in."""
        dice = self._dice
        if dice.random() > self._is_eager:
            return Act(number, epoch_ends=dice.random() < 0.05)
        if dice.random() < 0.1:
            return Act(number, snapshot=True)
        held = [ref.step for ref in self.run.status.states.refs()]
        if held and dice.random() < 0.08:
            return Act(number, goes_back=dice.choice([*held, *held, 9999]))
        stages = {each.seed_id: int(each.stage) for each in self.run.executor.reports()}
        orders = self._wide or self._orders
        commands = [orders.draw(stages) for _ in range(dice.choice([1, 1, 1, 2, 4]))]
        commands = [each for each in commands if not self._harms(fossilized(each))]
        requests = self.run.executor.requests() if dice.random() < 0.5 else []
        requests = [each for each in requests if not (each.operation == FOSSILIZE and self._harms(each.seed_id))]
        prefetches = (dice.choice(self.run.executor.sites), dice.choice(self.plan.blueprints))
        return Act(
            number,
            commands,
            requests,
            snapshot=dice.random() < 0.05,
            epoch_ends=dice.random() < 0.1,
            prefetches=prefetches if dice.random() < 0.05 else None,
            **self._besides(),
        )

    def _besides(self) -> dict[str, Any]:
        if self._wide is None:
            return {}
        dice, prunes = self._wide.dice, self.plan.wide.prunes
        return {
            "paused": dice.random() < self.plan.wide.pauses,
            "halts": self.plan.halts,
            "accuracy": dice.choice([0.9, 0.89, 0.5]) if prunes and dice.random() < 0.15 else None,
            "exports": self.run.pruning.settings.importance_every > 0 and dice.random() < 0.1,
        }

    def _harms(self, seed_id: str) -> bool:
        seed = self.run.executor.seeds.get(seed_id)
        return seed is not None and seed.blueprint_id in HARMFUL

    def act(self, act: Act) -> None:
        """The step, with what happens before it."""
        self.acts.append(act)
        order, step, pruned = acted(self.run, act, len(self.acts)), self.run.step_number, self._num_pruned()
        self.watch.step(act, order)
        lifts = self._num_pruned() < pruned or any(map(is_lifting, act.commands))
        if self._wide is not None and order is not None:
            self._wide.hear(order, self.watch.receipts)
            self._wide.newest_step = self.run.step_number
        told = answers(self.watch.receipts if order is not None else ())
        came = found(self.loop, self.run) | told
        self.course.note(act, step, came, violates=self.watch.violated, lifts=lifts)

    def _num_pruned(self) -> int:
        return self.run.pruning.masks.num_pruned()
