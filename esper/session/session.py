"""One rank of a run, as its training loop sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import structlog
import torch
from torch.utils.hooks import RemovableHandle

from esper.errors import RuntimeLostError, TrainingError
from esper.kasmina.prefetch import Prefetched, Wanted
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.session import records, resuming
from esper.session.batches import LoopPosition
from esper.session.exchange import FLUSH_S, HEARTBEAT_S, Exchange
from esper.session.lessons import Lessons, Said
from esper.session.portrait import Portrait
from esper.session.step import Step as Step
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.closures import Arguments, after_closure
from esper.tolaria.teachers import Teachers

T = TypeVar("T")

log = structlog.get_logger()

BARRIER_STEPS = 100
DECISION_TIMEOUT_S = 30.0


@dataclass
class Session:
    """Built by attach(). Steps count from 1 and never go back, not even on a rollback."""

    portrait: Portrait
    exchange: Exchange
    optimizer: torch.optim.Optimizer
    run_id: str
    pruning: Pruning
    steps_per_epoch: int = 0
    step_number: int = 1
    epoch: int = 0
    checkpoints: Checkpoints | None = None

    def __post_init__(self) -> None:
        self.executor, self.optimizers = self.portrait.executor, self.portrait.optimizers
        self._step = Step(self)
        self._beat_at = 0.0
        self._stepped = False  # the host's optimizer, since this step began
        self.executor.in_emergency = self._in_emergency
        self._barrier_due = False
        self.lessons = Lessons(None, self.portrait.steering.count)
        self._report: pb.WorkerReport | None = None
        self.requested: records.Requested | None = None  # the executor as Steering sees it
        self.position = LoopPosition()
        self.not_replayable = records.UNKNOWN_BATCHES
        self.ends_after = 0  # a replay ends after this step; 0: the loop does
        self._hooks: list[RemovableHandle] = [
            self.optimizer.register_step_pre_hook(self._before_optimizer_step),
            self.optimizer.register_step_post_hook(self._after_optimizer_step),
        ]
        self._beat()

    def step(self) -> Step:
        """The next step, as a context manager: `with run.step() as step:`."""
        return self._step

    @property
    def teachers(self) -> Teachers | None:
        """To distil from, where attach() was given a source of them."""
        return self.lessons.teachers

    def keep(self, checkpoints: Checkpoints | None, *, resume: bool = False) -> bool:
        """Make checkpoints from now on; with `resume`, first go on from the newest that verifies, if one does."""
        self.checkpoints = self.portrait.states.deep = checkpoints
        place = checkpoints.resume() if resume and checkpoints is not None else None
        if place is not None:
            self.step_number, self.epoch = place.step, place.epoch
            log.info("run.resumed", step=place.step, epoch=place.epoch)
        resuming.begin(self.exchange, checkpoints, place)
        return place is not None

    def begin(self, *, resumed: bool = False) -> None:
        """Put on record what this process begins with; called once, by attach()."""
        if resumed and self.epoch and self.position.epoch_began == 1:
            self.position.epoch_began = self.step_number  # of a checkpoint that does not say
        record = records.began(self.portrait, self.step_number, self.epoch, resumed=resumed)
        self.exchange.introduce(pb.ToRuntime(record=record))

    def batches(self, make: Callable[[int], Iterable[T]]) -> Iterator[T]:
        """Batches of this epoch from `make(epoch)`, behind those that a resumed run has already trained on.

        They are to be a function of the epoch alone, equally many on every rank: with that the run can be replayed.
        """
        self.not_replayable = ""
        return islice(make(self.epoch), self.step_number - self.position.epoch_began, None)

    def epoch_end(self) -> None:
        """Count an epoch; a barrier is due at the next step."""
        self.epoch += 1
        self.position.epoch_began = self.step_number
        self._barrier_due = True

    def note(self, **values: float) -> None:
        """Remember figures of the training script (accuracy=0.93): they travel with telemetry and the last report."""
        self.portrait.notes |= values
        if "accuracy" in values:
            self.pruning.note_accuracy(values["accuracy"])

    def prefetch(self, site: str, blueprint_id: str, **parameters: float) -> None:
        """Have the kernel built (and compiled) that the next GERMINATE of this blueprint there will want.

        It is made before one of the next steps, never in one, and a germination then takes it from the pool, with the
        same weights as without. Raises RefusedError where a name or a value is unknown. Committed germinations are
        prepared by themselves.
        """
        self.executor.prefetch.want(Wanted(site, blueprint_id, parameters))

    def export_importance(self, checkpoint_id: str) -> None:
        """Tell what each channel and head is worth, at a checkpoint; all ranks call it before the same step."""
        self._publish(self.pruning.export(f"checkpoint-{self.step_number}", checkpoint_id, self.step_number))

    @contextmanager
    def busy(self, what: int) -> Iterator[None]:
        """Say that the loop will be away from its boundary (a pb.BusyWith), so that no round times out on it."""
        self._beat(busy=what)
        yield
        self._beat()

    def close(self) -> pb.WorkerReport:
        """Send what is left, say farewell with a report, and end the runtime; leave model and optimizer to themselves.

        The model is what was trained, with the fossils in it and no other seed: no hook of ours stays on it or on its
        parameters, except for a fossil that does not fold into its site's weights.
        """
        if self._report is None:
            for hook in self._hooks:
                hook.remove()
            self._answer(self.lessons.end(self.step_number))
            self.pruning.close()
            self.optimizers.close()
            self.exchange.store_rows()
            self._report = self.portrait.report(self.step_number - 1, self.epoch)
            farewell = self.portrait.heartbeat(self.step_number, self.epoch)
            farewell.report.CopyFrom(self._report)
            why = self.not_replayable or (records.ITS_TEACHERS if self.teachers is not None else "")
            record = records.ended(self.portrait, self._report, why)
            self.exchange.say(pb.ToRuntime(record=record))
            self.optimizers.let_go(self.executor.detach())
            self.portrait.steering.fossils.release()
            self.exchange.part(farewell)
        return self._report

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self.not_replayable and kind is not SystemExit:
            self.not_replayable = f"its loop was ended by {kind.__name__}, nobody knows where in a step"
        self.close()

    def begin_step(self) -> None:
        """Carry out what takes effect before this step; wait only past a promise, or paused."""
        if self._barrier_due:  # said here and not earlier: a round that no next step votes on would be in vain
            self._barrier_due = False
            self._beat(barrier_due=True)
        self.exchange.pump()
        waited_since = 0.0
        while self._must_wait():
            waited_since = waited_since or time.monotonic()
            if self.exchange.boundary.paused_before:
                waited_since = time.monotonic()  # a pause may last; only an undecided promise may not
            elif time.monotonic() - waited_since > DECISION_TIMEOUT_S:
                raise RuntimeLostError(self._overdue())
            self.exchange.flush_when_due(force=True)
            self._beat_when_due()
            self.exchange.pump(FLUSH_S)
        if self.ends_after and self.step_number > self.ends_after:  # as far as the run came that is replayed
            self.close()
            raise SystemExit(0)
        self.portrait.steps_waited += bool(waited_since)
        self._prefetch()
        if self.checkpoints is not None:
            self._checkpoint(self.checkpoints)
        self._stepped = False
        self.optimizers.begin_step(self.step_number)
        self.executor.begin_step(self.step_number, self.epoch)
        self.pruning.begin_step(self.step_number)
        self._publish(self.pruning.take_exported())
        for event in self.pruning.take_events():
            self.exchange.rows.note(pb.TelemetryLevel.TELEMETRY_WARNING, event.name, **event.attributes)
            log.warning(event.name, **event.attributes)

    def _prefetch(self) -> None:
        """Make kernels ready for the germinations to come. A compiler takes its time, in which no round is to fail."""
        prefetch, boundary = self.executor.prefetch, self.exchange.boundary
        if not (prefetch or boundary.unforeseen or self.exchange.foreseen):
            return
        while self.exchange.foreseen:
            prefetch.foresee(self.exchange.foreseen.pop(0))
        for order in boundary.foreseen(self.step_number):
            for opened in order.commands:
                prefetch.foresee(opened.adaptation.seed_command, order.commit.effective_step)
        compiles = self.executor.kernels.regions is not None
        for wanted in prefetch.take_due(self.step_number):
            with self.busy(pb.BusyWith.BUSY_COMPILE) if compiles else nullcontext():
                self._tell_prefetched(prefetch.make(wanted))

    def _tell_prefetched(self, made: Prefetched) -> None:
        level = pb.TelemetryLevel.TELEMETRY_WARNING if made.detail else pb.TelemetryLevel.TELEMETRY_INFO
        event = "kernel.not_prefetched" if made.detail else "kernel.prefetched"
        facts = {"site": made.wanted.site, "blueprint": made.wanted.blueprint_id, "took_ms": f"{made.took_ms:.3g}"}
        facts |= {"detail": made.detail} if made.detail else {}
        self.exchange.rows.note(level, event, **facts)
        log.info(event, step=self.step_number, **facts)

    def _checkpoint(self, checkpoints: Checkpoints) -> None:
        if checkpoints.due(self.step_number):
            with self.busy(pb.BusyWith.BUSY_CHECKPOINT):
                checkpoints.at_boundary(self.step_number, self.epoch)
            if self.pruning.settings.importance_every:
                self.export_importance(str(self.step_number))
        else:
            checkpoints.at_boundary(self.step_number, self.epoch)

    def end_step(self, loss: torch.Tensor | None, step_ms: float) -> None:
        """Keep the step's measurements and go on to the next."""
        if not self._stepped:  # a GradScaler skipped the host's step, or the loop did: no hook has fired
            self.optimizers.skip(self.executor.learning())
        self.exchange.rows.add(self.step_number, time.time_ns(), self._values(loss, step_ms))
        self.step_number += 1
        self.exchange.flush_when_due()
        if self.steps_per_epoch and (self.step_number - 1) % self.steps_per_epoch == 0:
            self.epoch_end()
        elif (self.step_number - 1) % BARRIER_STEPS == 0:
            self._barrier_due = True
        self._beat_when_due()

    def _values(self, loss: torch.Tensor | None, step_ms: float) -> dict[str, float | torch.Tensor]:
        values: dict[str, float | torch.Tensor] = {"step_ms": step_ms, "lr": self.optimizers.learning_rate()}
        if loss is not None:
            values["loss"] = loss
            self.executor.note_loss(loss)
        if "accuracy" in self.portrait.notes:
            values["accuracy"] = self.portrait.notes["accuracy"]
        if self.teachers is not None:
            values |= self.teachers.take_measured()
        return values

    def _must_wait(self) -> bool:
        """Carry out what is due and vote if asked; True where the step may not begin yet."""
        boundary = self.exchange.boundary
        while (order := boundary.due(self.step_number)) is not None:
            receipts = self.portrait.steering.carry_out(order, self.step_number, self.epoch)
            self.portrait.gradients.ask(order.commit.round, self.step_number)
            self._answer(self.lessons.after(boundary.applied(order, receipts), receipts, self.step_number))
            self._keep_outcomes(order)
            if self.checkpoints is not None:
                self.checkpoints.note(order)
        if (proposal := boundary.vote_asked()) is not None:
            vote = self.portrait.vote(proposal, self.step_number, self.epoch)
            boundary.voted(vote)
            self.exchange.say(pb.ToRuntime(vote=vote))
        return bool(boundary.paused_before) or boundary.must_wait(self.step_number)

    def _keep_outcomes(self, order: pb.CommitOrder) -> None:
        outcomes = [] if self.requested is None else self.requested.take_outcomes()
        if outcomes and self.portrait.place.rank == 0:  # every rank has the same
            record = records.judged(self.portrait, order.commit.round, outcomes)
            self.exchange.say(pb.ToRuntime(record=record))

    def _answer(self, said: Said) -> None:
        for answer in said.answers:
            self.exchange.say(pb.ToRuntime(applied=answer))
        self._tell(said.receipts)

    def _tell(self, receipts: Sequence[pb.CommandReceipt]) -> None:
        """In the log, and as an event of the next packet: a command's completion shows in every tier."""
        for receipt in receipts:
            done = receipt.status == pb.ReceiptStatus.RECEIPT_APPLIED
            level = pb.TelemetryLevel.TELEMETRY_INFO if done else pb.TelemetryLevel.TELEMETRY_WARNING
            event = "command.applied" if done else "command.failed"
            self.exchange.rows.note(level, event, command=receipt.command_id, detail=receipt.detail)
            tell: Callable[..., Any] = log.info if done else log.warning
            tell(event, command=receipt.command_id, step=receipt.step, detail=receipt.detail)

    def _in_emergency(self, reason: str) -> None:
        """A breaker opened: tell of it, at once and in every tier, and save what can be saved."""
        self.exchange.rows.note(pb.TelemetryLevel.TELEMETRY_CRITICAL, "breaker.opened", reason=reason)
        log.error("breaker.opened", step=self.step_number, reason=reason)
        if self.checkpoints is not None:
            self.checkpoints.in_emergency(reason)

    def _overdue(self) -> str:
        promised = self.exchange.boundary.promised_from
        return (
            f"no decision within {DECISION_TIMEOUT_S:g} s on the round voted for at step {promised}; "
            f"step {self.step_number} was promised not to begin before it"
        )

    def _before_optimizer_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        looks = iter((self.pruning.before_optimizer_step,))  # once: a line search goes on from where the step began
        return after_closure(args, kwargs, lambda: [look(optimizer) for look in looks])

    def _after_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped = True
        self.portrait.gradients.take((p for group in optimizer.param_groups for p in group["params"]), self.step_number)
        self.pruning.after_optimizer_step()
        self._require_slots_fired()
        learning = self.executor.learning()
        if not learning:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.optimizers.reduce(learning)
        self.executor.observe(gradients, self.step_number)
        self.executor.note_steps(self.optimizers.step(self.step_number))

    def _require_slots_fired(self) -> None:
        if sites := self.executor.bypassed():
            raise TrainingError(
                f"step {self.step_number}: no slot fired at {', '.join(sites)} although its parameters have gradients; "
                "compiled code or a fast path goes past the module's hooks, so a seed there would have no effect"
            )

    def _publish(self, requests: Sequence[pb.StructuralPruningRequest]) -> None:
        """In a heartbeat each, from rank 0: every rank has the same."""
        for request in requests if self.portrait.place.rank == 0 else ():
            heartbeat = self.portrait.heartbeat(self.step_number, self.epoch)
            heartbeat.pruning.CopyFrom(request)
            self.exchange.say(pb.ToRuntime(heartbeat=heartbeat))

    def _beat_when_due(self) -> None:
        if time.monotonic() >= self._beat_at:
            news = self.teachers is not None and self.teachers.has_news
            self._beat(barrier_due=news or bool(self.executor.requests()))

    def _beat(self, *, barrier_due: bool = False, busy: int = 0) -> None:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        heartbeat = self.portrait.heartbeat(self.step_number, self.epoch, barrier_due=barrier_due, busy=busy)
        self.exchange.say(pb.ToRuntime(heartbeat=heartbeat))
