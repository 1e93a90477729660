"""What befalls a run, drawn by a seed, and what must hold of it in the end."""

from __future__ import annotations

import random

from esper.bus.delivery import Delivery
from esper.errors import EvictedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime.orders import Orders
from tests.rounds import germinate, header, optimizer, rollback
from tests.town.seat import GROUP, LOGS, Seat
from tests.town.trainer import FOLLOWED, Trainer

NUM_EVENTS = 120
TURN_MS = 250
TURNS = 40 * 1000 // TURN_MS  # twice as long as any round may last
OFTEN = {"trains": 6, "beats": 4, "reads": 6, "leads": 8, "ticks": 3, "waits": 3, "publishes": 2, "misprints": 1}
SELDOM = {"dies": 1, "destroys": 1, "hangs": 0.5, "wakes": 1, "leaves": 0.5, "joins": 1, "restarts": 0.5}


class Town(Seat):
    """A process group of three, or two replicas to which a third may come."""

    def __init__(self, seed: int, *, group: bool, loses: bool) -> None:
        super().__init__()
        self.dice, self.is_group = random.Random(seed), group
        self.num = 3 if group else 2
        self.kinds = OFTEN | SELDOM | {"rests": 0.2} | ({"loses": 0.4} if loses else {})
        self.published: list[int] = []
        self.excused: set[int] = set()  # whose group was destroyed behind a refusal: a later leader may answer again
        self.trainers: dict[int, Trainer] = {}
        self.num_begun = 0
        self.lead()
        for number in range(self.num):
            self.begin(number, 0)

    @property
    def training(self) -> list[Trainer]:
        return [each for each in self.trainers.values() if each.trains]

    def waits(self) -> bool:
        here = {trainer.name for trainer in self.trainers.values() if not trainer.has_left}
        return any(here.intersection(roster) for roster in self.asked.values())

    # -- one event ---------------------------------------------------------------------------------------------------

    def befall(self) -> None:
        [kind] = self.dice.choices(list(self.kinds), list(self.kinds.values()))
        getattr(self, f"one_{kind}")(self.dice.choice(list(self.trainers.values())))

    def one_trains(self, trainer: Trainer) -> None:
        for _ in range(self.dice.choice((1, 1, 4, 12))):
            self.step(trainer)

    def one_beats(self, trainer: Trainer) -> None:
        if not trainer.hangs:
            trainer.beat(due=trainer.trains and self.dice.random() < 0.2)

    def one_reads(self, trainer: Trainer) -> None:
        for _ in range(self.dice.choice((1, 3, 30))):
            if not trainer.hangs:
                self.follow(self.trainers[trainer.number], self.dice.choice(FOLLOWED))

    def one_leads(self, _: Trainer) -> None:
        name = self.dice.choice(LOGS)
        for _turn in range(self.dice.choice((1, 1, 3, 20))):
            self.reads(name)

    def one_ticks(self, _: Trainer) -> None:
        self.tick()

    def one_waits(self, _: Trainer) -> None:
        self.pass_time(self.dice.choice((10, 100, 400)))

    def one_publishes(self, _: Trainer) -> None:
        log, message = self.dice.choice((("commands", self.a_command()), ("optimizer", self.an_optimizer_command())))
        at = next(self.numbers)
        self.logs[log].entries[at] = Opened(header(), message, b"%d" % at, f"{at}-0", False)
        self.published.append(at)

    def a_command(self) -> pb.AdaptationCommand:
        at, site = len(self.published), self.dice.choice(("head", "hidden", "none"))
        return self.dice.choice((germinate(f"s{at}", site), rollback(8)))

    def an_optimizer_command(self) -> pb.OptimizerCommand:
        return optimizer(pb.OptimizerCommandType.OPTIMIZER_COMMAND_RESET_STATE)

    def one_misprints(self, _: Trainer) -> None:
        self.add("commands", "what nobody can open")

    def one_dies(self, _: Trainer) -> None:
        """The leader; the next one is there at once."""
        self.now_ns += 2_000_000
        self.lead()

    def one_destroys(self, _: Trainer) -> None:
        """One of the leader's groups."""
        name = self.dice.choice(LOGS)
        self.excused.update(at for at in self.published if at in self.answers)
        self.logs[name].begin_anew(GROUP)
        self.again[name] = []

    def one_hangs(self, trainer: Trainer) -> None:
        trainer.hangs = len(self.training) > 1

    def one_wakes(self, trainer: Trainer) -> None:
        trainer.hangs = False

    def one_leaves(self, trainer: Trainer) -> None:
        if not self.is_group and trainer.trains and len(self.training) > 1:
            trainer.has_left = True
            trainer.beat()

    def one_joins(self, trainer: Trainer) -> None:
        if trainer.has_left or (not self.is_group and len(self.trainers) == self.num):
            self.begin(trainer.number if trainer.has_left else self.num, 0)

    def one_restarts(self, trainer: Trainer) -> None:
        """A replica from its newest checkpoint; a group from a common one, or from none."""
        step = self.dice.choice((trainer.step, trainer.step // 2, 0)) if self.is_group else trainer.step
        if not trainer.has_left:
            for number in range(self.num) if self.is_group else [trainer.number]:
                self.begin(number, step)

    def one_rests(self, _: Trainer) -> None:
        for _turn in range(12):
            self.all_goes_well()

    def one_loses(self, _: Trainer) -> None:
        self.published.clear()
        self.lose_history()

    # -- what it is made of ------------------------------------------------------------------------------------------

    def begin(self, number: int, step: int) -> None:
        self.num_begun += 1
        decisions = self.logs["decisions"].entries
        orders = Orders(past=(max(decisions, default=0), 0), worker=f"worker-{number}", incarnation=self.num_begun)
        for at, said in decisions.items():  # as `Recaller.take_up` has it
            if isinstance(said, pb.LeaderAnnouncement):
                orders.follow(said)
            else:
                orders.is_past(said, Delivery("decisions", orders.worker, f"{at}-0", b"", 1))
        size = self.num if self.is_group else 1
        trainer = self.trainers[number] = Trainer(self, number, self.num_begun, size, step, orders)
        for name in FOLLOWED:
            for at in list(self.logs[name].left(trainer.name)):
                trainer.is_handed(name, at)
        trainer.beat()

    def follow(self, trainer: Trainer, log: str) -> bool:
        try:
            return trainer.reads(log)
        except EvictedError:
            self.one_restarts(trainer)
            return True

    def look_up(self, trainer: Trainer) -> None:
        try:
            trainer.looks_up()
        except TrainingError:
            self.one_restarts(trainer)

    def step(self, trainer: Trainer) -> None:
        """No rank of a group passes the others: each step waits for their gradients."""
        alone = not self.is_group or trainer.step == min(each.step for each in self.trainers.values())
        if trainer.trains and alone:
            trainer.trains_on()

    def all_goes_well(self) -> None:
        """All that there is is read, and everybody trains for a step."""
        self.now_ns += TURN_MS * 1_000_000
        for number in [trainer.number for trainer in self.training]:
            self.trainers[number].beat()
            for log in FOLLOWED:
                while self.follow(self.trainers[number], log):
                    pass
            self.look_up(self.trainers[number])
            self.step(self.trainers[number])
        for log in ("heartbeats", "votes", "commands", "optimizer"):
            while self.reads(log):
                pass
        self.tick()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def live(self) -> None:
        """All that befalls it, and then nothing more. AssertionError: something waits, was done twice, or is kept."""
        for _ in range(NUM_EVENTS):
            self.befall()
        for trainer in self.trainers.values():
            trainer.hangs = False
        for _ in range(TURNS):
            self.all_goes_well()
        num_rounds = self.num_rounds
        for _ in range(1000 // TURN_MS):
            self.all_goes_well()
        assert self.num_rounds - num_rounds <= 2, "rounds without end"
        assert all(self.answers[at] for at in self.published), "a command without an answer"
        twice = {at for at in self.published if self.answers[at] > 1} - self.excused
        assert not twice, f"commands {twice} are answered twice"
        assert not self.held, f"{self.held} stay in hand"
        for trainer in self.training:
            assert not trainer.boundary.must_wait(trainer.step), f"{trainer.name} waits for a decision"
            assert not trainer.orders.num_waiting, f"{trainer.name} waits for a command"
        self.all_are_as_they_should_be()

    def all_are_as_they_should_be(self) -> None:
        if not self.is_group:
            known = {member.worker for member in self.rule._roster._members.values()}
            assert known == {trainer.name for trainer in self.training}
            return
        longest = max((trainer.applied for trainer in self.trainers.values()), key=len)
        for trainer in self.trainers.values():
            assert trainer.applied == longest[: len(trainer.applied)], f"{trainer.name} has gone apart"
