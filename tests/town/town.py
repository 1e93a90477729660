"""What befalls a run, drawn by a seed, and what must hold of it in the end."""

from __future__ import annotations

import random
from collections.abc import Collection

from esper.errors import EvictedError, TrainingError
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.town.knowing import MS, S, keyring
from tests.town.orders import Command, drawn, of_the_optimizer
from tests.town.seat import LINGERS_NS, LOGS, STREAMS, Seat
from tests.town.trainer import FOLLOWED, Trainer

NUM_EVENTS, NUM_APART = 160, 120
"""How many befall it, and in how many of them, the first ones, clocks are set."""
TURN_MS = 500
TURNS = 40 * 1000 // TURN_MS  # twice as long as any round may last
OFTEN = {"trains": 6, "beats": 4, "reads": 6, "leads": 8, "ticks": 3, "waits": 3, "publishes": 2, "misprints": 1}
SELDOM = {"dies": 1, "destroys": 1, "hangs": 0.5, "wakes": 1, "leaves": 0.5, "joins": 1, "restarts": 0.5}
OTHERS = {"rests": 0.2, "revives": 1, "sets_clock": 1, "looks": 1, "repeats": 1}
LOSSES = {"loses": 0.3, "keeps": 1, "falls_back": 0.5, "deletes": 0.3, "forgets": 0.3}
CLOCK_STEPS_S = (0.7, 4, 90, 7200)


class Town(Seat):
    """A process group of three, or two replicas to which a third may come."""

    def __init__(self, seed: int, *, group: bool, loses: bool, only: Collection[int] = range(NUM_EVENTS)) -> None:
        """`only`: of all that befalls it these, by their number."""
        super().__init__()
        self.seed, self.only, self.loses = seed, only, loses
        self.dice, self.is_group = random.Random(seed), group
        self.num = 3 if group else 2
        self.kinds = OFTEN | SELDOM | OTHERS | (LOSSES if loses else {})
        self.num_published = 0
        self.published: dict[int, bytes] = {}  # by the number of the entry
        self.excused: set[int] = set()  # whose group was destroyed behind a refusal: a later leader may answer again
        self.trainers: dict[int, Trainer] = {}
        self.num_begun = 0
        self.story: list[str] = []
        roles = {"commands": Role.CONTROLLER, "optimizer": Role.OPTIMIZER}
        self.sealers = {
            log: Sealer(keyring(role), role, "client", clock_ns=self.server_ns) for log, role in roles.items()
        }
        self.lead()
        for number in range(self.num):
            self.begin(number, 0)
        self.keep()

    @property
    def training(self) -> list[Trainer]:
        return [each for each in self.trainers.values() if each.trains]

    def waits(self) -> bool:
        here = {trainer.name for trainer in self.trainers.values() if not trainer.has_left}
        return any(here.intersection(roster) for roster in self.asked.values())

    # -- one event ---------------------------------------------------------------------------------------------------

    def befall(self, at: int) -> None:
        """Drawn by its number, so that the others stay as they are where it is left out."""
        if at >= NUM_APART and "sets_clock" in self.kinds:
            self.clocks_agree()
        self.dice = random.Random(f"{self.seed}/{at}")
        [kind] = self.dice.choices(list(self.kinds), list(self.kinds.values()))
        trainer = self.dice.choice(list(self.trainers.values()))
        self.story.append(f"{kind} {trainer.name}")
        getattr(self, f"one_{kind}")(trainer)

    def one_trains(self, trainer: Trainer) -> None:
        for _ in range(self.dice.choice((1, 1, 4, 12))):
            self.step(trainer)

    def one_beats(self, trainer: Trainer) -> None:
        if not trainer.hangs:
            trainer.beat(due=trainer.trains and self.dice.random() < 0.2)

    def one_reads(self, trainer: Trainer) -> None:
        for _ in range(self.dice.choice((1, 3, 30))):
            if not trainer.hangs:
                self.follow(self.trainers[trainer.number], self.dice.choice(list(FOLLOWED)))

    def one_leads(self, _: Trainer) -> None:
        name = self.dice.choice(list(LOGS))
        for _turn in range(self.dice.choice((1, 1, 3, 20))):
            self.reads(name)

    def one_ticks(self, _: Trainer) -> None:
        self.tick()

    def one_waits(self, _: Trainer) -> None:
        self.pass_time(self.dice.choice((10, 100, 400)))
        for trainer in self.trainers.values():
            if trainer.clock.is_due:
                trainer.clock.look_again()

    def one_publishes(self, _: Trainer) -> None:
        self.publish(*drawn(self.dice, self.num_published))

    def publish(self, log: str, message: Command) -> str:
        """Its id."""
        self.num_published += 1
        message.command_id = f"{log}-{self.num_published}"
        sealed = self.sealers[log].seal(message)
        at = self.says(log, sealed)
        self.published[at] = sealed
        del self.answers[at]  # to one that is lost, and had this number
        return message.command_id

    def one_misprints(self, _: Trainer) -> None:
        """What nobody can open."""
        self.add("commands", b"junk")

    def one_dies(self, _: Trainer) -> None:
        """The leader; the next one is there at once."""
        self.passed_ns += 2 * MS
        if self.lost:  # what it remembered alone is gone with it
            self.excuse()
        self.lead()

    def one_destroys(self, trainer: Trainer) -> None:
        """One of the leader's groups, or of a trainer's."""
        if self.dice.random() < 0.5:
            name = self.dice.choice(list(LOGS))
            self.excuse()
            self.destroy(name)
        else:
            name = self.dice.choice(list(FOLLOWED))
            self.logs[name].begin_anew(trainer.name)
            trainer.begins_anew(name)

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

    def one_revives(self, trainer: Trainer) -> None:
        """The runtime beside it, which has died."""
        trainer.start_runtime()

    def one_rests(self, _: Trainer) -> None:
        for _turn in range(12):
            self.all_goes_well()

    def one_sets_clock(self, _: Trainer) -> None:
        """The server's."""
        step_s = self.dice.choice(CLOCK_STEPS_S) * self.dice.uniform(0.7, 1.3) * self.dice.choice((1, -1))
        self.set_ns += int(step_s * S)

    def one_looks(self, trainer: Trainer) -> None:
        """As each process does every so often, at another time than the others."""
        if self.dice.random() < 0.5:
            self.look_at_clock()
        else:
            trainer.clock.look_again()

    def one_repeats(self, _: Trainer) -> None:
        """An entry is added once more: by who had no answer to it, or by somebody who has none of the keys."""
        name = self.dice.choice(STREAMS)
        if newest := list(self.logs[name].entries.values())[-20:]:
            self.add(name, self.dice.choice(newest))

    def one_loses(self, _: Trainer) -> None:
        self.published.clear()
        self.flush()
        for trainer in self.trainers.values():
            for name in FOLLOWED:
                trainer.begins_anew(name)

    def one_keeps(self, _: Trainer) -> None:
        self.keep()

    def one_falls_back(self, trainer: Trainer) -> None:
        """To an earlier state; the other server may have another clock."""
        self.fall_back()
        self.excuse()
        for each in self.trainers.values():
            each.connects_anew()
        if "sets_clock" in self.kinds and self.dice.random() < 0.5:
            self.one_sets_clock(trainer)
        self.forget_published()

    def one_deletes(self, _: Trainer) -> None:
        name = self.dice.choice(STREAMS)
        self.delete(name)
        if name in FOLLOWED:
            for trainer in self.trainers.values():
                trainer.begins_anew(name)
        self.forget_published()

    def one_forgets(self, trainer: Trainer) -> None:
        """One key that is no stream."""
        if self.dice.random() < 0.5:
            self.forget()
        else:
            self.stored.pop(trainer.name, None)

    # -- what it is made of ------------------------------------------------------------------------------------------

    def begin(self, number: int, step: int) -> None:
        self.num_begun += 1
        size = self.num if self.is_group else 1
        trainer = self.trainers[number] = Trainer(self, number, self.num_begun, size, step)
        self.asked = {each: tuple(set(roster) - {trainer.name}) for each, roster in self.asked.items()}  # was another
        trainer.beat()

    def excuse(self) -> None:
        """A later leader may answer again what was answered, or is before anybody sees that a group was destroyed."""
        self.excused.update(self.published)

    def forget_published(self) -> None:
        there = self.logs["commands"].entries | self.logs["optimizer"].entries
        self.published = {at: sealed for at, sealed in self.published.items() if there.get(at) is sealed}

    def follow(self, trainer: Trainer, log: str) -> bool:
        try:
            return trainer.reads(log)
        except TrainingError as error:
            if not (isinstance(error, EvictedError) or trainer.has_left):
                self.gives_up("a decision is gone")
            self.one_restarts(trainer)
            return True

    def look_up(self, trainer: Trainer) -> None:
        try:
            trainer.looks_up()
        except TrainingError:
            self.gives_up("a command is gone")
            self.one_restarts(trainer)

    def gives_up(self, why: str) -> None:
        assert self.loses or self.were_apart, f"a trainer gives up, and nothing is lost: {why[:18]}"

    def step(self, trainer: Trainer) -> None:
        """No rank of a group passes the others: each step waits for their gradients."""
        alone = not self.is_group or trainer.step == min(each.step for each in self.trainers.values())
        if not (trainer.trains and alone):
            return
        try:
            trainer.trains_on()
        except TrainingError as error:
            self.gives_up(str(error))
            self.one_restarts(trainer)

    def clocks_agree(self) -> None:
        """From now on, and nobody waits any more for what was refused before."""
        del self.kinds["sets_clock"]
        for number in range(len(self.trainers)):  # who hung is there again, and reads what it was to read
            trainer = self.trainers[number]
            trainer.hangs = False
            trainer.clock.look_again()
            for log in FOLLOWED:
                while self.follow(self.trainers[number], log):
                    pass
        for _ in range(3 * LINGERS_NS // (TURN_MS * MS)):  # who gives up in the first refuses once more
            if not self.were_apart:
                return
            self.all_goes_well()
        raise AssertionError("what is refused when clocks agree is refused without end")

    def all_goes_well(self) -> None:
        """All that there is is read, and everybody trains for a step."""
        self.passed_ns += TURN_MS * MS
        self.look_at_clock()
        for number in [trainer.number for trainer in self.training]:
            self.trainers[number].clock.look_again()
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
        for at in self.only:
            self.befall(at)
        for trainer in self.trainers.values():
            trainer.hangs = False
        for _ in range(TURNS):
            self.all_goes_well()
        num_rounds = self.num_rounds
        for _ in range(1000 // TURN_MS):
            self.all_goes_well()
        assert self.num_rounds - num_rounds <= 2, "rounds without end"
        self.one_more_is_carried_out()
        assert all(self.answers[at] for at in self.published), "a command without an answer"
        twice = {at for at in self.published if self.answers[at] > 1} - self.excused
        assert not twice, "a command is answered twice"
        assert not self.held, f"{ {name for name, _ in self.held} } stay in hand"
        for trainer in self.training:
            assert not trainer.boundary.must_wait(trainer.step), "waits for a decision"
            assert not trainer.orders.num_waiting, "waits for a command"
        self.all_are_as_they_should_be()

    def one_more_is_carried_out(self) -> None:
        """Within some seconds, by every rank of a group; of replicas by the furthest."""
        last = self.publish("optimizer", of_the_optimizer())
        for _ in range(8 * 1000 // TURN_MS):
            self.all_goes_well()
        furthest = max(self.training, key=lambda each: each.step)
        for trainer in self.training if self.is_group else [furthest]:
            assert any(last in ids for _, _, ids in trainer.applied), "a command at the end is not carried out"

    def all_are_as_they_should_be(self) -> None:
        for trainer in self.trainers.values():
            ids = [at for _, _, names in trainer.applied for at in names]
            assert len(ids) == len(set(ids)), "a command is carried out twice"
        if not self.is_group:
            known = {member.worker for member in self.rule._roster._members.values()}
            assert known == {trainer.name for trainer in self.training}, "others are known than train"
            return
        longest = max((trainer.applied for trainer in self.trainers.values()), key=len)
        for trainer in self.trainers.values():
            assert trainer.applied == longest[: len(trainer.applied)], "a rank has gone apart"
