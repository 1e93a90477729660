"""The optimizers of all training seeds, made, stepped, kept and put back together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.joint import NOTHING_FOUND, Due, JointStep, Measured, StepFault, norm_of, strictest
from esper.tolaria.optimizers.owners import Owners
from esper.tolaria.optimizers.seed_optimizer import KeptSeedOptimizer, SeedOptimizer
from esper.tolaria.reduce import Trainee
from esper.tolaria.state.bank import Bank


class SeedOptimizers:
    """`held` has one for each training seed, by id. Knows no commands, and nothing of the host's optimizer."""

    def __init__(self, owners: Owners, clips: Callable[[], Mapping[str, float]]) -> None:
        self.held: dict[str, SeedOptimizer] = {}
        self._owners, self._clips, self._joint = owners, clips, JointStep()

    def create(self, seed: Trainee, hyperparameters: Mapping[str, float]) -> SeedOptimizer:
        """One without history, in place of what there was.

        RefusedError where a value does not fit, or one of the seed's parameters belongs to somebody else.
        """
        named = seed.trainable()
        if not named:
            detail = f"seed {seed.seed_id!r} has no parameters to optimise; germinate it first"
            raise RefusedError(pb.ReasonCode.REASON_ILLEGAL_TRANSITION, detail)
        made = SeedOptimizer(seed.seed_id, named, hyperparameters)
        self._owners.claim_seed(seed.seed_id, seed.trainable)
        self.held[seed.seed_id] = made
        return made

    def drop(self, seed_id: str) -> SeedOptimizer | None:
        """Forget it with all its state, if there is one, and let its parameters go."""
        self._owners.release(seed_id)
        return self.held.pop(seed_id, None)

    def step(self, step: int, found: Mapping[str, Measured] = NOTHING_FOUND) -> list[StepFault]:
        """Step all that have gradients and a lease, then clear all their gradients. Reads the device once.

        `found`: see Optimizers. Returns those that could not, with the reason; none of them keeps the others, or the
        host, from theirs.
        """
        due, clips = [], self._clips() if self.held else {}
        for seed_id, seed in self.held.items():
            if not (gradients := seed.gradients()):
                continue
            if (lease := seed.leases.at(step)) is None:
                seed.num_dropped += 1
            else:
                limit = strictest((lease.grad_clip_norm, clips.get(seed_id, 0.0)))
                due.append(Due(seed, gradients, limit, norm_of(gradients, found.get(seed_id))))
        faults = self._joint.step(due)
        self.forget_gradients()
        return faults

    def forget_gradients(self) -> None:
        for seed in self.held.values():
            seed.forget_gradients()

    def keep(self, bank: Bank) -> dict[str, KeptSeedOptimizer]:
        return {name: seed.keep(bank) for name, seed in self.held.items()}

    def restore(self, kept: Mapping[str, KeptSeedOptimizer], seeds: Mapping[str, Trainee]) -> list[str]:
        """Moments as they were; those that had no optimizer lose theirs. Returns the ids of those made anew."""
        seeds = {name: seed for name, seed in seeds.items() if seed.trainable()}  # one culled since stays culled
        for name in [name for name in self.held if name not in kept or name not in seeds]:
            self.drop(name)
        anew = [name for name in kept if name in seeds and not self._is(name, kept[name].kind)]
        for name in anew:
            self.create(seeds[name], kept[name].hyperparameters)
        for name, seed in self.held.items():
            seed.put_back(seeds[name].trainable(), kept[name])
        return anew

    def _is(self, seed_id: str, kind: str) -> bool:
        return seed_id in self.held and self.held[seed_id].kind.name == kind
