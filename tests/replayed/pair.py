"""A run of several trainers, drawn: each in a process of its own, and never two of them answered at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from esper.leyline import contracts as pb
from tests.garden.wrong import Wrong, require
from tests.replayed.far import Answer, Away, Call, Ended, Told
from tests.replayed.pair_plan import PairPlan
from tests.replayed.pair_script import Trainee
from tests.replayed.rank import BEAT_NS, ENDS, Rank
from tests.replayed.town import Town
from tests.replayed.trainee import Process, Says, lives
from tests.replayed.view import View

MOST_LIVES = 10
HANGS_NS = (2_000_000_000, 6_000_000_000, 12_000_000_000)
BESIDE_NS = 200_000_000
"""Passes with each word of one trainer while the other hangs."""


@dataclass
class Trainer:
    """One life of one of them. `says`: what it waits for an answer to; None: it computes."""

    number: int
    rank: Rank
    process: Process
    says: Says | None = None
    hangs_until_ns: int = 0

    @property
    def is_done(self) -> bool:
        return isinstance(self.says, Ended) and not self.says.why


class PairLife:
    """Of one group, which begins anew together, or of replicas."""

    def __init__(self, plan: PairPlan, folder: Path) -> None:
        self.plan, self.town, self.trainers = plan, Town(plan, folder), dict[int, Trainer]()
        self._num_lives = 0

    @property
    def told(self) -> list[str]:
        return self.town.told

    @property
    def is_group(self) -> bool:
        return self.plan.world_size > 1

    @property
    def is_summed_otherwise(self) -> bool:
        """Whether DDP had ranks begin anew that are so many that the order in which they are summed counts."""
        shared = self.plan.shared
        return shared is not None and shared.sharing.is_ddp and self.plan.num > 2 and self._num_lives > 1

    def live(self) -> None:
        """Train through every life to an end in order."""
        try:
            num = self.plan.num - bool(self.plan.late)
            self._begin([*range(num)])
            while not self._is_over():
                self._go_on()
            for _ in range(3):
                self.town.streams.pass_ms(1_100)
                self.town.leader.turn()
        finally:
            for each in self.trainers.values():
                each.process.kill()

    def _is_over(self) -> bool:
        """Whether all have ended; who was to join them by now begins."""
        is_over = all(each.is_done for each in self.trainers.values())
        if len(self.trainers) < self.plan.num and (is_over or self.town.num_looks >= self.plan.late):
            self.told.append(f"joined by worker-{self.plan.num - 1}")
            self._begin([self.plan.num - 1])
            return False
        return is_over

    def trainee(self, number: int) -> Trainee:
        return Trainee(self.plan, number, self.town.folder, self.town.keys.file, self.town.run_id)

    def reports(self) -> list[pb.WorkerReport]:
        """The last words of each rank."""
        said = [self.trainers[number].says for number in range(self.plan.num)]
        return [each.report for each in said if isinstance(each, Ended) and each.report is not None]

    def _begin(self, numbers: list[int]) -> None:
        self._num_lives += 1
        require(self._num_lives <= MOST_LIVES, f"it never ended: {self.told}")
        meet, lines = self.town.folder / f"meet-{self._num_lives}", list[Process]()
        for number in numbers:
            rank = self.town.rank(f"worker-{number}", self.plan.world_size)
            inherited = [each.process.line for each in self.trainers.values() if each.number not in numbers]
            inherited += [each.line for each in lines]
            process = Process(partial(lives, self.trainee(number), meet), self.town.folder, inherited)
            lines.append(process)
            self.trainers[number] = Trainer(number, rank, process)

    # -- who is answered next ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Once everybody waits for something, answer one of them."""
        for each in self.trainers.values():
            if each.says is None and not self._hears(each):
                return
        waiting = [each for each in self.trainers.values() if not each.is_done]
        if waiting and all(isinstance(each.says, Away) for each in waiting):
            require(len(waiting) == self.plan.num, "one rank waits for another that has ended")
            for each in waiting:
                each.says = None  # they meet
            return
        callers = [each for each in waiting if isinstance(each.says, Call)]
        ready = [each for each in callers if each.hangs_until_ns <= self.town.streams.passed_ns]
        if ready:
            self._answer(self.town.dice.choice(ready))
        if len(ready) < len(callers):
            self._pass(BESIDE_NS if ready else BEAT_NS)

    def _hears(self, trainer: Trainer) -> bool:
        """What it tells, up to what it waits for an answer to; False where it has died meanwhile."""
        while isinstance(said := trainer.process.hear(), Told):
            trainer.rank.live = partial(self._look, trainer, said.view)
            try:
                trainer.rank.send(said.message)
            except ENDS as error:
                self._dies(trainer, f"{type(error).__name__} {error}")
                return False
        trainer.says = said
        if isinstance(said, Ended) and said.why:
            self._has_ended(trainer, said)
            return False
        return True

    def _has_ended(self, trainer: Trainer, said: Ended) -> None:
        if said.why.startswith("!"):
            raise Wrong(f"{trainer.rank.name}: {said.why[1:]}")
        self._dies(trainer, said.why)

    def _pass(self, ns: int) -> None:
        """Time, in which runtimes say for their trainers that they live, but for those that hang."""
        self.town.streams.passed_ns += ns
        self._pulse()
        self.town.leader.turn()

    def _pulse(self) -> None:
        now_ns = self.town.streams.passed_ns
        for each in self.trainers.values():
            each.rank.settle_in_time()
            if not each.is_done and each.hangs_until_ns <= now_ns:
                each.rank.pulse()

    def _answer(self, trainer: Trainer) -> None:
        call, trainer.says, rank = trainer.says, None, trainer.rank
        assert isinstance(call, Call)
        rank.live = partial(self._look, trainer, call.view)
        try:
            said = self._done(rank, call)
        except ENDS as error:
            self._dies(trainer, f"{type(error).__name__} {error}")
            return
        trainer.process.line.send(Answer(rank.alive, rank.num_starts, rank.decided, said))

    def _done(self, rank: Rank, call: Call) -> list[pb.ToTrainer]:
        match call.what:
            case "start":
                rank.start()
            case "poll":
                rank.portray = None if call.beat is None else partial(_same, call.beat)
                return rank.poll(call.timeout_s)
        return []

    def _look(self, trainer: Trainer, view: View) -> None:
        self._pulse()
        num = len(self.told)
        self.town.look(trainer.rank, view)
        if any(each.startswith("hang ") for each in self.told[num:]):
            trainer.hangs_until_ns = self.town.streams.passed_ns + self.town.dice.choice(HANGS_NS)

    # -- deaths ------------------------------------------------------------------------------------------------------

    def _dies(self, trainer: Trainer, why: str) -> None:
        """A replica alone; of a group the others end soon after, and all begin anew."""
        self.told.append(f"{trainer.rank.name} ends: {why}")
        self._kill(trainer)
        if not self.is_group:
            self._begin([trainer.number])
            return
        for other in [each for number, each in sorted(self.trainers.items()) if number != trainer.number]:
            for _ in range(self.town.dice.choice([0, 0, 1, 3, 8])):
                if not self._goes_on(other):
                    break
            self._kill(other)
        self._begin([*range(self.plan.num)])

    def _goes_on(self, other: Trainer) -> bool:
        """Whether it was answered once more, with the other rank dead."""
        other.rank.live = lambda: None
        try:
            while isinstance(call := other.says or other.process.hear(), Told):
                other.rank.send(call.message)
            if not isinstance(call, Call):
                return False
            other.says, said = None, self._done(other.rank, call)
        except ENDS:
            return False
        other.process.line.send(Answer(other.rank.alive, other.rank.num_starts, other.rank.decided, said))
        return True

    def _kill(self, trainer: Trainer) -> None:
        trainer.process.kill()
        trainer.rank.live, trainer.rank.alive, trainer.rank.portray = (lambda: None), False, None


def _same(beat: pb.Heartbeat) -> pb.Heartbeat:
    return beat
