"""Coordinators and ranks killed at every point of a round, and coordinators that wake up after they were replaced."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from tests.faults import check_rounds
from tests.faults.council import DEADLINE_S, Council, council
from tests.faults.processes import SOON_S, Child, TooLateError, state_of, wait_until
from tests.faults.roles import leader, rank
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import Tail
from tests.faults.server import single
from tests.faults.serving import Serve

MOST_PASSED = 3
ANY_MOMENT = "at_any_moment"


@dataclass
class Fates:
    """Who dies next, and where. One coordinator leads and one stands by; whoever dies is followed by the next."""

    town: Council
    result: Result
    chance: random.Random
    ranks: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tail = Tail(self.town.directory / "history", "worker")
        self.ranks = [self.town.train(at) for at in range(self.town.world_size)]

    def num_committed(self) -> int:
        return len(check_rounds.rounds_committed(self._tail.records()["committed"]))

    def go_on(self, more: int = 1) -> None:
        """Wait until so many more rounds are committed."""
        enough = self.num_committed() + more
        wait_until(lambda: self.num_committed() >= enough, "rounds go on", SOON_S)

    def end(self, current: Child, point: str, *, stops: bool) -> None:
        """Wait until a leader has met its fate; one that stands still is woken once it was replaced."""
        if stops:
            wait_until(lambda: not current.alive or state_of(current.pid) == "T", f"a leader stops {point}")
            if not current.alive:
                raise TooLateError(f"a leader lost its lease, which is short, before it came to stop {point}")
            self.go_on()
            current.resume()
            wait_until(lambda: not current.alive, "a leader that was replaced ends")
            self.result.expect("taken over" in current.last_words(), f"it ended otherwise: {current.last_words()}")
            self.result.count("leader_stops")
            return
        if point == ANY_MOMENT:
            self.go_on()
            current.kill()
        wait_until(lambda: not current.alive, f"a leader dies {point}")
        self.result.count(f"leader_{point}")

    def kill_rank(self, point: str) -> None:
        """One rank dies at this point, and begins anew where the others are."""
        at = self.chance.randrange(len(self.ranks))
        self.ranks[at].kill()
        victim = self.ranks[at] = self.town.train(at, point, self.chance.randrange(MOST_PASSED), step=self._step())
        wait_until(lambda: not victim.alive, f"a rank dies {point}")
        self.ranks[at] = self.town.train(at, step=self._step())
        self.result.count(f"rank_{point}")

    def stop_rank(self) -> None:
        """One rank stands still for longer than it is waited for: its whole group ends, it too, and begins anew."""
        self.go_on(10)  # all have beaten since one of them was last started
        victim = self.chance.choice(self.ranks)
        victim.pause()
        others = [each for each in self.ranks if each is not victim]
        self.town.expect_given_up(self.result, "a rank that hung", lambda: not any(each.alive for each in others))
        victim.resume()
        wait_until(lambda: not victim.alive, "one that wakes up finds that its group has ended")
        untold = [each.log.stem for each in self.ranks if "the process group ends" not in each.last_words()]
        self.result.expect(not untold, f"{untold} ended otherwise")
        self.ranks = [self.town.train(at, step=self._step()) for at in range(self.town.world_size)]
        self.go_on(2)
        self.result.count("rank_stops")

    def _step(self) -> int:
        return max((record["step"] for record in self._tail.records()["committed"]), default=1)


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    with council(directory, amounts["workers"], serve) as town:
        fates, commander = Fates(town, result, chance), town.command(amounts["commands_per_s"])
        order = [*deaths(amounts, chance), ("", False)]
        current = town.lead(*first(order[0], chance), stops=order[0][1])
        wait_until(partial(leads, current), "the first one leads")  # one that starts beside it might come before it
        for (point, stops), following in pairwise(order):
            heir = town.lead(*first(following, chance), stops=following[1])
            fates.end(current, point, stops=stops)
            current = heir
            wait_until(partial(leads, heir), "the one that stands by takes over")
        for point in rank_points(amounts, chance):
            fates.kill_rank(point)
        for _ in range(amounts["rank_stops"]):
            fates.stop_rank()
        fates.go_on(max(1, amounts["epochs"] - fates.num_committed()))
        result.expect(all(each.alive for each in (current, *fates.ranks)), "a process ended by itself")
        result.count("epochs", fates.num_committed())
        town.close_orders(commander, result)
    judge(town, result)
    return result


def leads(coordinator: Child) -> bool:
    """Whether it took over: only then may another one stand by, which would be as likely to."""
    return coordinator.log.exists() and "coordinator.leads" in coordinator.log.read_text()


def deaths(amounts: Amounts, chance: random.Random) -> Iterator[tuple[str, bool]]:
    """Points at which leaders end, one after the other; True: it stands still there."""
    order = [(point, False) for point in leader.POINTS] * amounts["kills"]
    order += [("before_commit", True)] * amounts["stops"]
    chance.shuffle(order)
    for point, stops in order:
        yield point, stops
        if stops:
            yield ANY_MOMENT, False  # who takes over from it is there for long enough to be met


def first(fate: tuple[str, bool], chance: random.Random) -> tuple[str, int]:
    """A point, and how often it is passed before; who leads announces itself once."""
    point, _ = fate
    return point, 0 if point == "before_announcement" else chance.randrange(MOST_PASSED)


def rank_points(amounts: Amounts, chance: random.Random) -> list[str]:
    points = list(rank.POINTS) * amounts["kills"]
    chance.shuffle(points)
    return points


def judge(town: Council, result: Result) -> None:
    """What ranks wrote down, by a checker that knows nothing of the runtime."""
    for violation in check_rounds.judge_rounds(town.history()):
        result.expect(False, violation)
    for life in town.lives():
        for seconds in check_rounds.waits_s(life):
            result.sample("decided_s", seconds)
            result.expect_soon(seconds <= DEADLINE_S, f"a vote waited {seconds:.1f} s for its decision")


ROW = Row(
    "barriers",
    run,
    ci={"workers": 4, "epochs": 30, "kills": 1, "stops": 1, "rank_stops": 1, "commands_per_s": 10},
    chunk={"workers": 8, "epochs": 50, "kills": 3, "stops": 2, "rank_stops": 1, "commands_per_s": 10},
    num_chunks=20,
    anywhere=True,
)
