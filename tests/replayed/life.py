"""One run, drawn: commands and troubles come as it trains, and at last it ends in order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden.loops import Loop
from tests.grove.taught import let_go
from tests.replayed.plan import Plan
from tests.replayed.rank import ENDS, Rank
from tests.replayed.script import Kept, Script, join, looped, train
from tests.replayed.town import Town
from tests.replayed.view import View

MOST_LIVES = 6


class Life:
    """A run of one rank, until it has ended."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.town, self.kept = plan, Town(plan, folder), Kept()
        self.rank: Rank | None = None
        self.session: Session | None = None

    @property
    def told(self) -> list[str]:
        return self.town.told

    def live(self) -> None:
        """Train through every life to an end in order, as often as it is begun again behind one."""
        self._to_its_end()
        for more in self.plan.further:
            self.told.append(f"begun again at {self._view().step}, for {more} steps more")
            self.plan = replace(self.plan, num_steps=self.plan.num_steps + more)
            self.town.leader.lead()
            self._to_its_end()

    def _to_its_end(self) -> None:
        for _ in range(MOST_LIVES):
            rank = self.rank = self.town.rank()
            rank.live = partial(self._look, rank)
            try:
                train(looped(self.plan), rank, self._join, self.kept, self.plan)
                self.town.leader.turn()
                return
            except ENDS as error:
                self.told.append(f"life ends at {self._view().step}: {type(error).__name__} {error}")
                rank.live, rank.alive = (lambda: None), False
                rank.portray = None
                if self.session is not None:
                    self.session.abandon()
            finally:
                if self.session is not None:
                    let_go(self.session)  # also where it is wrong: an interpreter waits for its threads
        raise AssertionError(f"it never ended: {self.told}")

    def _join(self, script: Script) -> Session:
        assert isinstance(script, Loop)
        assert self.rank is not None
        town = self.town
        self.session = join(self.plan, script, self.rank, town.folder / "checkpoints", town.keys.file, town.run_id)
        return self.session

    def _look(self, rank: Rank) -> None:
        self.town.look(rank, self._view())

    def _view(self) -> View:
        return View() if self.session is None else View.of(self.session)

    def reports(self) -> list[pb.WorkerReport]:
        """The last words of each rank."""
        assert self.session is not None
        return [self.session.close()]
