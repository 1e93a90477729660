"""What the votes say about a run, and how it will stand once the commands judged so far have taken effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from esper.errors import RefusedError, listed, near
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import ACTIVE_STAGES, DORMANT, EMBARGOED, FOLLOWS, VACATED_STAGES, target_stage

HOST = "host"
EMBARGO_JUST_BEGUN = 2**64 - 1
MOST_SOUGHT = 8  # of 300 sites to find those that are near takes 10 ms, and 1,000 commands may wait


@dataclass
class SeedView:
    """One seed, as the judge sees it."""

    stage: pb.SeedLifecycleStage
    site: str = ""
    embargo_until_epoch: int = 0

    @property
    def holds_its_site(self) -> bool:
        return self.stage not in VACATED_STAGES


@dataclass(frozen=True)
class Catalogue:
    """What every worker can germinate, and where, in the order of the first one: what all their heartbeats name.

    Worked out once it is asked for: most rounds germinate nothing, and all ranks wait for the judge.
    """

    heartbeats: Sequence[pb.Heartbeat] = ()

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """Of which each exists in every worker's host."""
        named = [dict.fromkeys(each.sites) for each in self.heartbeats]
        return tuple(site for site in named[0] if all(site in sites for sites in named)) if named else ()

    @cached_property
    def blueprints(self) -> Mapping[str, pb.KernelManifest]:
        """Of which each is installed beside every worker, with the same digest."""
        if not self.heartbeats:
            return {}
        shared = [{each.blueprint_id: each.digest for each in beat.blueprints} for beat in self.heartbeats]
        return {
            each.blueprint_id: each
            for each in self.heartbeats[0].blueprints
            if all(digests.get(each.blueprint_id) == each.digest for digests in shared)
        }


class World:
    """The voted state, moved on by each command accepted. Optimistic about gates: the ranks answer for those.

    Two ranks that voted at different steps agree all the same, as stages change only at effective steps.
    """

    def __init__(
        self,
        seeds: Mapping[str, SeedView],
        optimizers: Mapping[str, int | None],
        snapshots: Sequence[int],
        *,
        own_host: bool = False,
    ) -> None:
        """`own_host`: leases govern the host's optimizer on every rank."""
        self.seeds = dict(seeds)
        self.optimizers = dict(optimizers)
        self.snapshots = tuple(snapshots)
        self.own_host = own_host
        self._num_sought = 0

    @staticmethod
    def of(votes: Sequence[pb.BarrierVote], *, alike: bool = True) -> World:
        """As the furthest voter stands: where replicas are at different steps, the others come to that.

        `alike`: they are ranks of a group, whose snapshots of a step are equal.
        """
        furthest = max(votes, key=lambda vote: vote.step)
        seeds = {
            state.seed_id: SeedView(state.stage, state.site, state.embargo_until_epoch) for state in furthest.seeds
        }
        own_host = all(vote.own_host for vote in votes)
        return World(seeds, furthest.optimizers, common_snapshots(votes, alike=alike), own_host=own_host)

    def met_again(self, votes: Sequence[pb.BarrierVote], *, alike: bool = True) -> World:
        """This world at the next round, whose votes were given before what was committed here took effect."""
        return World(self.seeds, self.optimizers, common_snapshots(votes, alike=alike), own_host=self.own_host)

    def seed(self, seed_id: str) -> SeedView:
        """A seed that exists; refused where it doesn't."""
        if seed_id not in self.seeds:
            raise RefusedError(
                pb.ReasonCode.REASON_UNKNOWN_SEED,
                f"seed {seed_id!r} is unknown{self.near(seed_id, self.seeds)}; seeds: {listed(self.seeds)}",
            )
        return self.seeds[seed_id]

    def near(self, name: str, known: Iterable[str]) -> str:
        """Known names that are alike, for the first refusals of a round alone, as all ranks wait for its judge."""
        self._num_sought += 1
        return near(name, known) if self._num_sought <= MOST_SOUGHT else ""

    def move(self, seed_id: str, operation: pb.SeedOperation) -> None:
        """Carry out an operation, and what follows it by itself; refused where it isn't legal."""
        view = self.seed(seed_id)
        target = target_stage(view.stage, operation)
        view.stage = FOLLOWS.get(target, target)
        if view.stage == EMBARGOED:
            view.embargo_until_epoch = EMBARGO_JUST_BEGUN
        if view.stage not in ACTIVE_STAGES:
            self.optimizers.pop(seed_id, None)

    def germinate(self, seed_id: str, site: str) -> None:
        """Move a seed, known or new, out of DORMANT at a site."""
        stage = self.seeds[seed_id].stage if seed_id in self.seeds else DORMANT
        target = target_stage(stage, pb.SeedOperation.SEED_OP_GERMINATE)
        self.seeds[seed_id] = SeedView(target, site)
        self.optimizers.pop(seed_id, None)

    def holder(self, site: str, but: str) -> str | None:
        """The other seed that holds this site, if one does."""
        return next(
            (name for name, seed in self.seeds.items() if seed.site == site and name != but and seed.holds_its_site),
            None,
        )

    def steppable(self) -> list[str]:
        """Everything that an optimizer may be named after: the host, and each seed that is built."""
        built = [name for name, seed in self.seeds.items() if seed.stage in ACTIVE_STAGES]
        return [HOST, *dict.fromkeys([*(name for name in self.optimizers if name != HOST), *built])]


def common_snapshots(votes: Sequence[pb.BarrierVote], *, alike: bool = True) -> tuple[int, ...]:
    """Steps of the snapshots that all hold, oldest first; `alike`: with the same digest."""
    held = [{(each.step, each.digest if alike else b"") for each in vote.snapshots} for vote in votes]
    return tuple(sorted(step for step, _ in set.intersection(*held)))
