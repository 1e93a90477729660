"""Looks at a life after each step: what may never be, whatever was ordered."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from esper.kasmina.pruning.units import CHANNEL, LAYER, WEIGHT
from esper.kasmina.seeds.seed import Seed
from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden import marks
from tests.garden.ends import Gone, close
from tests.garden.fuses import Fuses
from tests.garden.governed import Governed, Rules
from tests.garden.loops import Loop
from tests.garden.marks import Marks, differing
from tests.garden.newest import Late
from tests.garden.plan import Act
from tests.garden.resumed import Saved
from tests.garden.teachers import OWN, Lesson
from tests.garden.wrong import require

Stage = pb.SeedLifecycleStage
CLOSED = pb.CircuitBreakerState.BREAKER_CLOSED
TEACHES = pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER
APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
LEGAL = {
    "DORMANT": {"GERMINATED", "TERMINATED"},
    "GERMINATED": {"TRAINING", "CULLED"},
    "TRAINING": {"BLENDING", "CULLED"},
    "BLENDING": {"SHADOWING", "CULLED"},
    "SHADOWING": {"PROBATIONARY", "CULLED"},
    "PROBATIONARY": {"FOSSILIZED", "CULLED"},
    "FOSSILIZED": {"TERMINATED"},
    "CULLED": {"EMBARGOED"},
    "EMBARGOED": {"RESETTING"},
    "RESETTING": {"DORMANT"},
    "TERMINATED": set[str](),
}
"""Of the design's table of stages, written down a second time."""
NO_SECOND = "derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is not implemented"
"""What torch says to a backward through a backward of attention that draws nothing, with a seed or without."""
UNLEARNED = "element 0 of tensors does not require grad"
BACK = ("rolled back", "rolled back to before it germinated")


class Watch:
    """A twin of the script trains beside it without a session, for as long as no seed has touched the output."""

    def __init__(self, loop: Loop, run: Session, fuses: Fuses | None = None) -> None:
        """`fuses` where breakers go by steps."""
        self.loop, self.run = loop, run
        self.twin: Loop | None = loop.twin()
        self._names = [*loop.host.state_dict()]
        self._own = {name for name, _ in loop.host.named_parameters()}
        self.kept: dict[int, Marks] = {}
        self._gone = Gone()
        self.saved = dict[int, Saved]()  # beside the checkpoint of each step
        self._num_acts = 0
        self._known_violations: dict[int, int] = {}
        self.violated = False  # in the newest step a seed reached beyond its own
        self.timed = False  # a breaker has opened: whether it lets something through is a matter of seconds
        self._before: Marks = {}
        self._held = self._prunes = False
        self._moving: set[str] = set()  # parameters of what is being pruned: the step itself prunes on, or undoes it
        self._num_casts = 0
        self.governed = Governed()
        self.fuses = fuses
        self._known = {""}  # what the script raises without Esper, too
        self.receipts: list[pb.CommandReceipt] = []
        self._pending: list[pb.RoundApplied] = []

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, act: Act, order: pb.CommitOrder | None) -> None:
        self._before, self._held = marks.of_host(self.loop), bool(self.run.pruning.masks.held[0])
        self._prunes, self._moving = self.run.pruning._change is not None, self._being_pruned()
        placed = self._placed()
        said = self.loop.step(act.number, self.run, lambda: self._began(act, order, placed))
        if order is not None:
            self._answered(order)
        self._gone.note(self.run)
        self._num_acts += 1
        self.timed |= any(each.state != CLOSED for each in self.run.executor.breakers.values())
        self.violated = self._reached(self._known_violations)
        if self.violated:
            self.twin = None  # what was written to the host stays written, and the seed is to be culled
        if self.twin is not None:
            self._compare(self.twin, act, said)
        else:
            self._expected(act, said)
        self._look(said, act)

    def _began(self, act: Act, order: pb.CommitOrder | None, placed: list[str]) -> None:
        """In the step, once its orders were carried out."""
        require(self._placed() == placed, f"the optimizer steps {self._placed()}, and not {placed}")
        self._known_violations = self._violations()  # an order may have them forgotten
        self._look_for_gradients()
        self._look_at_masks()
        if self._num_casts != self.loop.num_casts:  # what was kept fits no more
            self._num_casts, self.kept = self.loop.num_casts, {}
        if act.goes_back in self.kept:
            self._went_back(self.kept[act.goes_back])
            self.kept = {step: kept for step, kept in self.kept.items() if step <= act.goes_back}
        elif not self._changes_host(order):
            odd = differing(marks.of_host(self.loop), self._before)
            require(not odd, f"orders changed {odd}")
        if self._changes_host(order):
            self.twin = None
        if order is not None:
            answer = self.run.exchange.boundary.on_commit(order)
            self.governed.hear(order, [] if answer is None else answer.receipts, self.run.step_number)
            if self.fuses is not None and answer is not None:
                self.fuses.hear(order, answer.receipts, self.run.executor._collector.clock())
        if self.touched():
            self.twin = None
        elif self.twin is None:
            self.twin = self.loop.twin()
        if self.twin is not None:
            self.twin.rules = self._rules()
        self._randomness = marks.randomness()
        if self.run.checkpoints is not None and self.run.checkpoints.due(self.run.step_number):
            self.saved[self.run.step_number] = Saved.of(self.loop, self._num_acts, self.run)
        if act.snapshot and not (act.commands or act.requests):
            self.kept[self.run.step_number] = {k: v for k, v in self._state().items() if k not in self._moving}
            self.kept = dict([*self.kept.items()][-2:])  # as many as a rank keeps

    def _placed(self) -> list[str]:
        """Of the script's own parameters those that its optimizer steps, in their groups' order."""
        names = {id(each): name for name, each in self.loop.host.named_parameters() if name in self._own}
        placed = [each for group in self.loop.optimizer.param_groups for each in group["params"]]
        return [names[id(each)] for each in placed if id(each) in names]

    def _violations(self) -> dict[int, int]:
        return {id(seed): seed.violations for seed in self._living()}

    def _reached(self, before: dict[int, int]) -> bool:
        """Whether a seed has reached beyond its own in this step: one of a blueprint that does."""
        found = [seed for seed in self._living() if seed.violations > before.get(id(seed), 0)]
        said = [f"{seed.seed_id}: {seed.violation}" for seed in found if seed.blueprint_id != "writes"]
        require(not said, f"found guilty {said}")
        return bool(found)

    def _changes_host(self, order: pb.CommitOrder | None) -> bool:
        # What is masked may be undone by itself, and a ramp goes on.
        if order is None:
            return self._held or self._prunes
        folds = any(each.operation == pb.SeedOperation.SEED_OP_FOSSILIZE for each in order.commit.requests)
        return self._held or self._prunes or folds or any(map(changes_host, order.commands))

    def touched(self) -> bool:
        """Whether the host's own training may be another than without Esper."""
        held = self.run.pruning.masks.held[0] or not (self._rules().is_plain or self.loop.can_be_told)
        held = held or (isinstance(self.loop.lesson, Lesson) and self.loop.lesson.touches)
        blends = any(each.blends and not each.paused and float(each.alpha) for each in self._living())
        return bool(held or blends)

    def _rules(self) -> Rules:
        return self.governed.rules(self.run.step_number)

    def _living(self) -> Iterator[Seed]:
        yield from (each for each in self.run.executor.seeds.values() if each.module is not None)

    def _compare(self, twin: Loop, act: Act, said: str) -> None:
        after = marks.randomness()
        marks.put_randomness(self._randomness)
        alone = twin.step(act.number)
        if not said and UNLEARNED in alone and self._teaches_seed():
            self.twin = None  # all of the host is frozen, and what is distilled into a seed learns on
            marks.put_randomness(after)
            return
        require(said == alone, f"{said or 'nothing'} was raised, and {alone or 'nothing'} without Esper")
        self._known.add(alone)
        odd = differing(marks.of_all(self.loop) | after, marks.of_all(twin))
        require(not odd, f"not as without Esper: {odd}")
        marks.put_randomness(after)

    def _teaches_seed(self) -> bool:
        return isinstance(self.loop.lesson, Lesson) and self.loop.lesson.of_seed is not None

    def _expected(self, act: Act, said: str) -> None:
        known = self.loop.manner.event(act.number) in ("raises", "empty", "single", "not finite")
        known = known or (self.loop.habits.penalty and NO_SECOND in said)
        known = known or OWN in said or said.startswith(Late.__name__) or said in self._known
        require(known or (UNLEARNED in said and self._has_no_gradient(act)), f"raised: {said}")

    def _has_no_gradient(self, act: Act) -> bool:
        """Whether the script has frozen all that its loss hangs on: then it would raise so without Esper, too."""
        before, host = marks.randomness(), copy.deepcopy(self.loop.host)
        learns = self.loop.first(host(self.loop.batch(act.number))).requires_grad
        marks.put_randomness(before)
        return not learns

    # -- what was said -----------------------------------------------------------------------------------------------

    def _answered(self, order: pb.CommitOrder) -> None:
        """A repeat of the commit is answered with the receipts of the first one."""
        answer = self.run.exchange.boundary.on_commit(order)
        require(answer is not None, "a commit was not carried out")
        assert answer is not None
        asked = [each.ref.command_id for each in order.commands]
        require([each.command_id for each in answer.receipts] == asked, f"{asked} is answered with {answer.receipts}")
        self.receipts = [*answer.receipts]
        for command, receipt in zip(order.commands, answer.receipts, strict=True):
            if command.optimizer.command_type == TEACHES and not receipt.status:
                self._pending.append(answer)
                continue
            require(receipt.status in (APPLIED, FAILED), str(receipt))
            require(receipt.status == APPLIED or (receipt.reason and receipt.detail), str(receipt))

    # -- what there is -----------------------------------------------------------------------------------------------

    def _look(self, said: str, act: Act) -> None:
        if self.fuses is not None:
            self.fuses.look(self.run.executor._collector.clock())
        self._look_at_names()
        self._look_at_optimizers(said)
        self._look_at_stages()
        finite = marks.finite(each for name, each in self._before.items() if name in self._own)
        # What is masked may hide from the script that its batch is not finite, of which every gradient is made.
        held = self._held or self.run.pruning.masks.held[0]  # a ramp may have begun with this step
        hides = held and self.loop.manner.event(act.number) == "not finite"
        if finite and not hides:
            if self.loop.second is None:  # what that steps is zero from the next step on
                self._look_at_masks()
            now = marks.of_model(self.loop)
            known = self.twin is not None or marks.finite(now[name] for name in self._own if name in now)
            require(known, "the host is not finite any more")  # with a twin it is as without Esper

    def _look_at_masks(self) -> None:
        """What is pruned is zero."""
        for (name, kind), kept in self.run.pruning.masks.now().items():
            if kind == LAYER:
                inside = self.loop.host.get_submodule(name).named_parameters(name)
                pruned: list[Tensor] = [each for full, each in inside if full in self._own]  # no fossil's
            elif kind in (CHANNEL, WEIGHT):
                weight = self.loop.host.get_parameter(name)
                pruned = [weight.flatten()[~kept] if kind == WEIGHT else weight[~kept]]
            else:
                continue
            require(not any(bool(each.any()) for each in pruned), f"{name} is not zero where it is pruned")

    def _look_at_names(self) -> None:
        fossils = set(self.run.executor._fossils.modules())
        extra = [name for name in self.loop.host.state_dict() if name not in self._names]
        extra = [name for name in extra if ".added" not in name]  # by the script
        require(all(any(f"seed_{fossil}_" in name for fossil in fossils) for name in extra), f"the model has {extra}")
        missing = [name for name in self._names if name not in self.loop.host.state_dict()]
        require(not missing, f"the model lacks {missing}")

    def _look_at_stages(self) -> None:
        for report in self.run.executor.reports():
            before = "DORMANT"
            if report.records_dropped:
                before = name_of(report.history[0].stage)
            for record in report.history:
                stage = name_of(record.stage)
                legal = stage == before or stage in LEGAL[before] or record.detail in BACK
                require(legal, f"{report.seed_id} went from {before} to {stage}: {record.detail}")
                before = stage
            require(before == name_of(report.stage), f"{report.seed_id} is {name_of(report.stage)}, not {before}")

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _state(self) -> Marks:
        return marks.of_model(self.loop) | marks.of_optimizer(self.loop) | marks.randomness() | marks.of_seeds(self.run)

    def _being_pruned(self) -> set[str]:
        units = [self.run.pruning.masks.units[key] for key in self.run.pruning._order]
        held = {id(parameter) for unit in units for _, parameter in unit.tensors()}
        return {name for name, each in self.loop.host.named_parameters() if id(each) in held}

    def _went_back(self, kept: Marks) -> None:
        now = self._state()
        odd = [name for name in differing(now, kept) if name in kept or name not in self._own]
        gone = {name for name, seed in self.run.executor.seeds.items() if seed.module is None}
        gone |= {name.split()[0] for name in kept if name.endswith(" is")} - {*self.run.executor.seeds}
        odd = [name for name in odd if name.split()[0] not in gone]
        require(not odd, f"a rollback did not put back {odd}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def closes(self) -> None:
        """Close the run, and look whether anything is left of seeds that are no part of the model."""
        left = self._gone.left(self._kept_modules())
        require(not left, f"something holds {left}")
        shelf = self.run.executor.kernels.pool._shelf
        held = sum(kernel.get_memory_size() for _, kernel in shelf.values())
        require(self.run.executor.kernels.pool.num_bytes == held, "the pool's account is not what it holds")
        if isinstance(self.loop.lesson, Lesson):
            self.loop.lesson.close()
            self.loop.lesson = None
        close(self.loop, self.run, require)
        unanswered = [each for answer in self._pending for each in answer.receipts if not each.status]
        require(not unanswered, f"never answered: {unanswered}")

    def _kept_modules(self) -> Iterator[nn.Module]:
        """Of seeds that live, or would after a rollback, and of the host."""
        yield from (seed.module for seed in self._living() if seed.module is not None)
        yield from self.loop.host.modules()
        kept = [each for ref in self.run.executor._kept if (each := ref()) is not None]
        yield from (seed.fields.module for each in kept for seed in each.values() if seed.fields.module is not None)

    def _look_at_optimizers(self, said: str) -> None:
        """Each is of a seed that lives, and every parameter that is owned is of one that steps."""
        held = {*self.run.optimizers._seeds}
        living = {seed.seed_id for seed in self._living() if seed.trainable()}
        require(held <= living, f"there are optimizers of {held - living}")
        owned = set(self.run.optimizers._owners._owned.values())
        require(owned <= {"host", *held}, f"parameters are owned by {owned}")
        if not (said or self.loop.manner.strays):
            self._look_for_gradients()

    def _look_for_gradients(self) -> None:
        left = [seed.seed_id for seed in self._living() if any(each.grad is not None for _, each in seed.trainable())]
        require(not left, f"gradients are left at {left}")


def changes_host(opened: pb.OpenedCommand) -> bool:
    """Whether a command may change the host's own weights, or what its optimizer does."""
    if opened.WhichOneof("body") == "optimizer":
        return opened.optimizer.optimizer_id in ("host", "")
    match opened.adaptation.WhichOneof("command"):
        case "seed_command":
            return bool(opened.adaptation.seed_command.operation == pb.SeedOperation.SEED_OP_FOSSILIZE)
        case "optimizer_adjustment" | "pruning_masks" | "rollback_command":
            return True
    return False


def name_of(stage: int) -> str:
    return Stage.Name(cast("pb.SeedLifecycleStage", stage)).removeprefix("SEED_STAGE_")
