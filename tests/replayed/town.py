"""Everything of a drawn run but its trainers: who publishes, decides and holds the logs, and what befalls them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from esper.leyline.kinds import Role
from esper.leyline.replay import ReplayGuard
from tests.replayed.author import Author
from tests.replayed.keys import Keys
from tests.replayed.leader import Leader
from tests.replayed.plan import Plan
from tests.replayed.rank import Killed, Rank
from tests.replayed.streams import Streams
from tests.replayed.view import View

MOST_LOOKS_PAUSED = 5


class Town:
    """Looked at by whichever trainer comes to a boundary: then time has passed, and something may befall somebody."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.run_id = plan, folder, f"replayed-{plan.seed:08x}"
        self.keys = Keys(self.run_id, folder / "worker.json")
        self.streams = Streams()
        self.leader = Leader(self.streams, self.keys, plan.snapshots)
        self.streams.keep()
        self.dice = Random(-1 - plan.seed)
        keyring = self.keys.of(Role.CONTROLLER, Role.OPTIMIZER)
        digests = [] if plan.taught is None else plan.taught.digests(plan.kind, folder / "teachers")
        self.author = Author(self.dice, self.streams, keyring, plan, digests)
        self.ranks = dict[str, Rank]()  # by name: the newest process of each
        self.told = list[str]()
        self._guards = dict[str, Mapping[str, ReplayGuard]]()
        self.num_looks = 0
        self._paused_since: dict[str, int] = {}

    def rank(self, name: str = "worker-0", world_size: int = 1) -> Rank:
        """Of a process that begins."""
        logs = ("commands", "optimizer", "decisions")
        guards = self._guards.setdefault(name, {log: ReplayGuard() for log in logs})
        rank = self.ranks[name] = Rank(self.streams, self.leader, self.keys, guards, name, world_size)
        self._paused_since.pop(name, None)
        rank.dice = self.dice
        return rank

    def look(self, rank: Rank, view: View) -> None:
        self.num_looks += 1
        trouble = self.plan.troubles.get(self.num_looks)
        if trouble is not None:
            self.told.append(f"{trouble} before {view.step} of {rank.name}")
            self.befall(trouble, rank, view)
        if self.dice.random() < self.plan.eager:
            for _ in range(self.dice.choice([1, 1, 1, 3])):
                self.author.publish(view)
        self._resume_in_time(rank.name, view)
        if self.dice.random() < 0.1:
            self.streams.keep()

    def befall(self, trouble: str, rank: Rank, view: View) -> None:
        """Whatever it is; Killed where the trainer is not to go on."""
        match trouble:
            case "leader":
                self.leader.lead()
            case "runtime":
                rank.alive = False
            case "trainer":
                raise Killed(trouble)
            case "flush" | "fall back":
                self.streams.lose() if trouble == "flush" else self.streams.fall_back()
                for each in self.ranks.values():
                    each.connect_anew()
                self.leader.lost()
            case "trim":
                self._trim(view)
            case "clock":
                by_ns = self.dice.choice([-3_600, -90, 90, 3_600]) * 10**9
                self.streams.set_by(by_ns)
                self.leader.rule.on_clock_step(by_ns)
            case "rotate":
                is_set = "clock" in self.plan.troubles.values()
                self.keys.rotate(self.streams.now_ns(), self.dice, slowly=is_set)

    def _trim(self, view: View) -> None:
        """Below the oldest checkpoint that is kept."""
        for name in ("commands", "optimizer", "decisions"):
            if view.positions and all(name in each for each in view.positions):
                self.streams.trim(name, min(each[name] for each in view.positions))

    def _resume_in_time(self, name: str, view: View) -> None:
        if not view.is_paused:
            self._paused_since.pop(name, None)
        elif self.num_looks - self._paused_since.setdefault(name, self.num_looks) > MOST_LOOKS_PAUSED:
            self.author.resume(view)
