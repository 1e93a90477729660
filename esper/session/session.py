"""One rank of a run, as its training loop sees it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
import torch

from esper.errors import RuntimeLostError, SettingError
from esper.kasmina.germination.prefetch import Wanted
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.runtime import notify
from esper.session import records, resuming
from esper.session.batches import LoopPosition
from esper.session.exchange import FLUSH_S, FLUSH_STEPS, HEARTBEAT_S, Exchange
from esper.session.host_hooks import HostHooks
from esper.session.interrupted import is_interrupted
from esper.session.preparing import prepare_kernels
from esper.session.rank_status import RankStatus
from esper.session.statements import StatementQueue
from esper.session.step import Step as Step
from esper.session.teacher_registration import TeacherRegistrations
from esper.session.telling import Telling
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.teachers.teachers import Teachers

T = TypeVar("T")

log = structlog.get_logger()

BARRIER_STEPS = 100
DECISION_TIMEOUT_S = 30.0


@dataclass
class Session:
    """Built by attach(). A loop calls batches, step, epoch_end, note, busy, prefetch, export_importance and close."""

    status: RankStatus
    exchange: Exchange
    optimizer: torch.optim.Optimizer
    run_id: str
    pruning: Pruning
    steps_per_epoch: int = 0
    epoch: int = 0
    checkpoints: Checkpoints | None = None

    def __post_init__(self) -> None:
        self.executor, self.optimizers = self.status.executor, self.status.optimizers
        self._step = Step(self, self.optimizer, self.status.rows, self.exchange.doorbell)
        self._beat_at = 0.0
        self.exchange.boundary.stirred = self._step.wake
        self.executor.in_emergency = self._in_emergency
        self.executor.on_displaced = lambda site, detail: self._telling.displaced(site, detail, self.step_number)
        self._barrier_due = False
        self._statements = self.exchange.statements = StatementQueue(self.status, self.run_id, self.exchange.say)
        self.registrations = TeacherRegistrations(None, self.status.steering.count)
        self._report: pb.WorkerReport | None = None
        self.position = LoopPosition(step=lambda: self._step.number)
        self.not_replayable = records.UNKNOWN_BATCHES
        self.ends_after = 0  # a replay ends after this step; 0: the loop does
        self._telling = Telling(self.status, self.exchange)
        self._hooks = HostHooks(self.status, self.pruning, self.optimizer)
        self._gated = self.optimizers.own_host
        self._beat()

    def step(self) -> Step:
        """The next step, as a context manager: `with run.step() as step:`."""
        return self._step

    @property
    def step_number(self) -> int:
        """Of the step under way, or of the next one. Counts from 1 and never goes back, not even on a rollback."""
        return self._step.number

    @step_number.setter
    def step_number(self, number: int) -> None:
        self.status.rows.settle()  # it counts on from the last one
        self._step.number = number
        self._step.wake()

    @property
    def teachers(self) -> Teachers | None:
        """To distil from, where attach() was given a source of them."""
        return self.registrations.teachers

    def keep(self, checkpoints: Checkpoints | None, *, resume: bool = False) -> bool:
        """Make checkpoints from now on; with `resume`, first go on from the newest that verifies, if one does."""
        self.checkpoints = self.status.states.deep = checkpoints
        self._step.wake()
        if checkpoints is not None:
            checkpoints.on_failed, checkpoints.settle = self._telling.checkpoint_failed, self._settle
            self.position.is_due = checkpoints.due
        place = checkpoints.resume() if resume and checkpoints is not None else None
        if place is not None:
            self.step_number, self.epoch = place.step, place.epoch
            self.position.resume(place.step, place.epoch)
            log.info("run.resumed", step=place.step, epoch=place.epoch)
        resuming.begin(self.exchange, checkpoints, place)
        return place is not None

    def begin(self, *, resumed: bool = False) -> None:
        """Put on record what this process begins with; called once, by attach()."""
        record = records.began(self.status, self.step_number, self.epoch, resumed=resumed)
        self.exchange.introduce(pb.ToRuntime(record=record))
        self._statements.begin(self.epoch)

    def batches(self, make: Callable[[int], Iterable[T]]) -> Iterator[T]:
        """Batches of this epoch from `make(epoch)`, behind those that a resumed run has already trained on.

        They are to be a function of the epoch and of torch's, numpy's and python's own generators, equally many on
        every rank: so the run can be replayed. A step may take several. What reads ahead belongs into `make`.
        """
        self.not_replayable = ""
        return self.position.handed_out(partial(make, self.epoch))

    def epoch_end(self) -> None:
        """Count an epoch; a barrier is due at the next step."""
        self.epoch += 1
        self.position.begin_epoch(self.step_number)
        self._barrier_due = True
        self._step.wake()

    def note(self, **values: float) -> None:
        """Remember figures of the script (accuracy=0.93). Of many, the report tells of 64, accuracy among them."""
        self.status.notes |= values
        if "accuracy" in values:
            self.status.rows.go_with(accuracy=values["accuracy"])
            self.pruning.note_accuracy(values["accuracy"])

    def note_examples(self, num_examples: int) -> None:
        """Count what was trained on; heartbeats tell the sum."""
        if num_examples < 0:
            raise SettingError("examples", num_examples, "a count, at least 0")
        self.status.examples += num_examples

    def prefetch(self, site: str, blueprint_id: str, **parameters: float) -> None:
        """Have the kernel built (and compiled) that the next GERMINATE of this blueprint there will want.

        It is made before one of the next steps, never in one, and a germination then takes it from the pool, with the
        same weights as without. Raises RefusedError where a name or a value is unknown. Committed germinations are
        prepared by themselves.
        """
        self.executor.prefetch.want(Wanted(site, blueprint_id, parameters))
        self._step.wake()

    def export_importance(self, checkpoint_id: str) -> None:
        """Tell what each channel and head is worth, at a checkpoint; all ranks call it before the same step."""
        exported = self.pruning.export(f"checkpoint-{self.step_number}", checkpoint_id, self.step_number)
        self._telling.importance(exported, self.step_number, self.epoch)

    @contextmanager
    def busy(self, what: int) -> Iterator[None]:
        """Say that the loop will be away from its boundary (a pb.BusyWith), so that no round times out on it."""
        self._beat(busy=what)
        yield
        self._beat()

    def close(self) -> pb.WorkerReport:
        """Send what is left, say farewell with a report, and end the runtime; leave model and optimizer to themselves.

        The model is what was trained, with the fossils in it and no other seed: no hook of ours stays on it or on its
        parameters, except for a fossil that does not fold into its site's weights. On the way out by Ctrl-C or SIGTERM
        it takes seconds, and starts no runtime where that is dead too.
        """
        if self._report is None:
            self.exchange.is_hurried = is_interrupted()
            self._take_hooks_off()
            self._telling.answer(self.registrations.end(self.step_number))
            self._statements.look(self.step_number, self.epoch)
            self.exchange.store_rows(self.step_number - 1)
            self._report = self.status.report(self.step_number - 1, self.epoch)
            farewell = self.status.heartbeat(self.step_number, self.epoch)
            farewell.report.CopyFrom(self._report)
            met = self.pruning.by_chance or (self.teachers.by_chance if self.teachers is not None else "")
            record = records.ended(self.status, self._report, self.not_replayable or met, self.position)
            self._let_go()
            self.exchange.part(farewell, record)
        return self._report

    def abandon(self) -> None:
        """Leave model and optimizer to themselves where attach() fails: nobody will close this session."""
        self._take_hooks_off()
        self._let_go()

    def _take_hooks_off(self) -> None:
        self._hooks.remove()
        self.pruning.close()
        self.optimizers.close()

    def _let_go(self) -> None:
        self.optimizers.let_go(self.executor.detach())
        self.status.steering.fossils.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self.not_replayable and kind is not SystemExit:
            self.not_replayable = f"its loop was ended by {kind.__name__}, nobody knows where in a step"
        self.close()

    def begin_step(self) -> None:
        """Carry out what takes effect before this step, if anything does; wait only past a promise, or paused."""
        if self._step.doorbell[0] or not self.exchange.boundary.is_idle:
            self.exchange.pump()
        if self.step_number < self._step.due and not self.exchange.foreseen:
            return
        self._hooks.require_split_before()
        self._settle()
        self.pruning.settle()
        if self._barrier_due:  # said here and not earlier: a round that no next step votes on would be in vain
            self._barrier_due = False
            self._beat(barrier_due=True)
            self._statements.look(self.step_number, self.epoch)
        if not self.exchange.boundary.is_idle:
            self._wait_and_carry_out()
        if self.ends_after and self.step_number > self.ends_after:  # as far as the run came that is replayed
            self.close()
            raise SystemExit(0)
        if self.executor.prefetch.wanted or self.exchange.foreseen or self.exchange.boundary.unforeseen:
            told = partial(self._telling.prefetched, step=self.step_number)
            prepare_kernels(self.executor, self.exchange, self.step_number, self.busy, told)
        if self.checkpoints is not None:
            self._checkpoint(self.checkpoints)
        if self._gated:
            self.optimizers.begin_step(self.step_number)
        self.executor.begin_step(self.step_number, self.epoch)
        self._hooks.look(self.pruning.looks)
        if not self.pruning.is_idle:
            self.pruning.begin_step(self.step_number)
            self._telling.news_of(self.pruning, self.step_number, self.epoch)
        self._hooks.begin_step(self.step_number)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Find out how many steps are like this one, in which nothing is to be done unless something comes."""
        rests = self._hooks.is_idle and self.pruning.is_idle and not (self._gated or self.registrations.teachers)
        self._step.is_plain = rests and self.optimizers.has_plain_values
        if not rests or self.ends_after or self.executor.prefetch.wanted:
            self._step.wake()
        else:
            made = math.inf if self.checkpoints is None else self.checkpoints.next_due(self.step_number)
            self._step.due = min(self.executor.next_due(), made, self.exchange.boundary.next_due)

    def _wait_and_carry_out(self) -> None:
        waited_since = 0.0
        while self._must_wait():
            waited_since = waited_since or time.monotonic()
            if self.exchange.boundary.paused_before:
                waited_since = time.monotonic()  # a pause may last; only an undecided promise may not
            elif time.monotonic() - waited_since > DECISION_TIMEOUT_S:
                raise RuntimeLostError(self.exchange.boundary.overdue(self.step_number, DECISION_TIMEOUT_S))
            now = time.monotonic()
            self.exchange.flush_when_due(now, force=True)
            self._beat_when_due(now)
            self.exchange.pump(FLUSH_S)
        self.status.steps_waited += bool(waited_since)

    def _checkpoint(self, checkpoints: Checkpoints) -> None:
        if checkpoints.due(self.step_number):
            with self.busy(pb.BusyWith.BUSY_CHECKPOINT):
                checkpoints.at_boundary(self.step_number, self.epoch)
            if self.pruning.settings.importance_every:
                self.export_importance(str(self.step_number))
        else:
            checkpoints.at_boundary(self.step_number, self.epoch)

    def end_step(self, loss: torch.Tensor | float | None, step_ms: float) -> None:
        """Keep the step's measurements and go on to the next."""
        self._hooks.end_step()
        self.executor.take_losses(self._step.losses)
        if loss is not None:
            self.executor.note_loss(loss)
        values = self.status.values(loss, step_ms)
        if self.teachers is not None:
            values.update(self.teachers.take_measured())
        self.exchange.rows.add(self.step_number, time.time_ns(), values)
        self._step.number += 1
        now = time.monotonic()
        if self.step_number >= self._step.look_from or now >= self._step.look_at:
            self.look_around(now)

    def look_around(self, now: float) -> None:
        """After a step: do what is due by how many there were, or by the time, in monotonic seconds."""
        done = self.step_number - 1
        if not self._step.look_from:  # for the first time
            notify.tell(notify.TRAINED)
        if self.steps_per_epoch and done % self.steps_per_epoch == 0:
            self.epoch_end()
        elif done % BARRIER_STEPS == 0:
            self._barrier_due = True
            self._step.wake()
        self._settle()
        self.exchange.flush_when_due(now)
        self._beat_when_due(now)
        if self.exchange.foreseen:  # heard just now, where no doorbell rings for it any more
            self._step.wake()
        left = [each - done % each for each in (BARRIER_STEPS, self.steps_per_epoch) if each]
        self._step.look_from = self.step_number + min(*left, FLUSH_STEPS - self.exchange.rows.num_fresh % FLUSH_STEPS)
        self._step.look_at = min(self._beat_at, self.exchange.flush_at)

    def _settle(self) -> None:
        """Tell what quiet steps have not: each vote, snapshot and checkpoint is of all steps that are over."""
        self.executor.take_losses(self._step.losses)
        self.executor.step = max(self.executor.step, self.step_number - 1)
        if self.checkpoints is not None:
            self.checkpoints.stand_before(self.step_number, self.epoch)

    def _must_wait(self) -> bool:
        """Carry out what is due and vote if asked; True where the step may not begin yet."""
        boundary, step = self.exchange.boundary, self.step_number
        while (order := boundary.due(step)) is not None:
            receipts = self.status.steering.carry_out(order, step, self.epoch)
            self.position.orders.note(order.commit)
            self.status.sample(order.commit, step)
            self._telling.answer(self.registrations.after(boundary.applied(order, receipts), receipts, step))
            self._telling.outcomes(order.commit.round, self.status.steering.judged)
            self._statements.orders_carried_out()
            if self.checkpoints is not None:
                self.checkpoints.note(order)
        if (proposal := boundary.vote_asked()) is not None:
            vote = self.status.vote(proposal, step, self.epoch)
            boundary.voted(vote)
            self.exchange.say(pb.ToRuntime(vote=vote))
        return bool(boundary.paused_before) or boundary.must_wait(step)

    def _in_emergency(self, reason: str) -> None:
        """A breaker opened: tell of it, at once and in every tier, and save what can be saved."""
        self._telling.emergency(reason, self.step_number)
        if self.checkpoints is not None:
            self.checkpoints.in_emergency(reason)

    def _beat_when_due(self, now: float) -> None:
        if now >= self._beat_at:
            self.exchange.pump()  # rung or not: that rows are stored is told without
            news = self.teachers is not None and self.teachers.has_news
            self._beat(barrier_due=news or bool(self.executor.requests()))

    def _beat(self, *, barrier_due: bool = False, busy: int = 0) -> None:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        self._telling.beat(self.step_number, self.epoch, barrier_due=barrier_due, busy=busy)
