"""Seeds as plain data, for a checkpoint, and how they are made again from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import CheckpointError, RefusedError
from esper.kasmina.fossil import Fossils
from esper.kasmina.gates.ablation import cuda_devices
from esper.kasmina.gates.ring import Ring
from esper.kasmina.germination.kernels import warmed
from esper.kasmina.isolation.foreign_code import BlueprintFault, guarded
from esper.kasmina.isolation.hooks import HookCensus, UnfreedMemory
from esper.kasmina.moves import Moves
from esper.kasmina.seeds.seed import Moment, Seed
from esper.kasmina.seeds.seed_data import (
    UNFORGIVEN,
    copy_into,
    fill,
    fill_ring,
    fill_tensors,
    ring_of,
    row_of,
    same,
    site_shape,
    tensors_of,
)
from esper.kasmina.seeds.snapshot import STAYED, withdraw
from esper.kasmina.slots.sites import neighbours, put_in_order
from esper.kasmina.slots.slot import Slot
from esper.kernels.residual import Scaled
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import ACTIVE_STAGES


@dataclass(frozen=True, slots=True)
class MadeSeeds:
    """Modules built from a checkpoint with their values in them; nothing hangs on the host yet."""

    durable: DurableSeeds
    dumped: Mapping[str, Any]
    modules: Mapping[str, nn.Module]
    fossil_names: Sequence[str]

    def put_back(self, step: int) -> None:
        self.durable.adopt(self, step)


@dataclass
class DurableSeeds:
    """Reads and writes the seeds of an executor. Culled seeds come back only into a process that never knew them."""

    host: nn.Module
    losses: Ring
    moves: Moves
    now: Callable[[], Moment]  # of the next step

    @property
    def seeds(self) -> Mapping[str, Seed]:
        return {seed_id: seed for seed_id, seed in self.moves.known.items() if seed.trainable()}

    @property
    def _slots(self) -> Mapping[str, Slot]:
        return self.moves.slots

    @property
    def _fossils(self) -> Fossils:
        return self.moves.fossils

    def fossil_tensors(self) -> list[Tensor]:
        """Parameters and buffers that the host has got from fossils."""
        return [each for module in self._fossils.modules().values() for each in tensors_of(module).values()]

    def dump(self) -> dict[str, Any]:
        """Data of numbers, text and tensors. The tensors are the live ones: pack it before anything is stepped."""
        return {
            "step": self.now().step,
            "losses": ring_of(self.losses),
            "forgotten": self.moves.num_forgotten,
            "slots": {name: slot.generation for name, slot in self._slots.items()},
            "seeds": {seed_id: self._row(seed) for seed_id, seed in self.moves.known.items()},
            "fossils": {
                seed_id: {"scaled": isinstance(module, Scaled), "tensors": tensors_of(module)}
                for seed_id, module in self._fossils.modules().items()
            },
        }

    def make(self, dumped: Mapping[str, Any]) -> MadeSeeds:
        """Build what lives in it. Raises CheckpointError, with nothing changed, where sites or blueprints differ."""
        modules, names = {}, list[str]()
        for seed_id, row in dumped["seeds"].items():
            if row["site"] not in self._slots:
                raise CheckpointError(f"its seed {seed_id!r} is at {row['site']!r}; sites: {', '.join(self._slots)}")
            fossil = dumped["fossils"].get(seed_id)
            if fossil is not None:
                module = self._built(row)
                modules[seed_id] = Scaled(module, torch.zeros((), device="cpu")) if fossil["scaled"] else module
                fill_tensors(seed_id, modules[seed_id], fossil["tensors"])
                names += self._names(row, modules[seed_id])
            elif row["tensors"] is not None:
                modules[seed_id] = self._built(row)
                fill_tensors(seed_id, modules[seed_id], row["tensors"])
                self._warm(row, modules[seed_id])
        return MadeSeeds(self, dumped, modules, names)

    def adopt(self, made: MadeSeeds, step: int) -> None:
        """Undo what happened to the seeds since, except culls; in a new process, let all be as they were."""
        dumped, known, now = made.dumped, self.moves.known, Moment(step, self.now().epoch)
        self._shape_slots(dumped["seeds"].values())
        for seed in [each for each in known.values() if each.alive]:
            row = dumped["seeds"].get(seed.seed_id)
            if row is None or not same(seed, row) or row["stage"] not in STAYED:
                withdraw(seed, self._slots[seed.site], self._fossils, now)
        num_then = dumped.get("forgotten", 0)  # an older checkpoint does not say
        is_whole = self.moves.num_forgotten <= num_then  # else who is not known is one that is over since
        rows = {seed_id: row for seed_id, row in dumped["seeds"].items() if is_whole or seed_id in known}
        back = [one for seed_id, row in rows.items() if (one := self._filled(seed_id, row, now))]
        self.moves.num_forgotten = max(self.moves.num_forgotten, num_then)
        for seed in back:
            seed.schedule = seed.schedule.resumed(dumped["step"], step)
        for seed in back:
            self._settle(seed, made.modules.get(seed.seed_id))
        for seed_id in dumped["fossils"]:
            fossil = known.get(seed_id)
            if fossil is not None and fossil in back:
                self._join_again(fossil, made.modules[seed_id])
        for name, generation in dumped["slots"].items():
            if name in self._slots:
                self._slots[name].generation = max(self._slots[name].generation, generation)
        fill_ring(self.losses, dumped["losses"])

    def _shape_slots(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What flows there, where nothing has yet: the next checkpoint may be made before anything does."""
        device = next((each.device for each in self.host.parameters()), torch.device("cpu"))
        for row in rows:
            slot = self._slots.get(row["site"])
            if slot is not None and slot.shape is None and row["shape"] is not None:
                slot.shape = site_shape(row["shape"], device)

    def _filled(self, seed_id: str, row: Mapping[str, Any], now: Moment) -> Seed | None:
        """The seed as it was; None where it failed since, or gave way to another of its name."""
        seed = self.moves.known.get(seed_id)
        if seed is None:
            seed = self.moves.known[seed_id] = self._new(row)
            seed.history = [pb.StageRecord.FromString(each) for each in row["history"]]
            seed.records_dropped, seed.gates_dropped = row.get("records_dropped", 0), row.get("gates_dropped", 0)
            if kept := row.get("breaker"):  # an older checkpoint has none
                seed.breaker.load_state_dict(kept)
        elif same(seed, row) and seed.alive:
            seed.record(row["stage"], now, detail="rolled back")
            row = {**row, **{name: getattr(seed, name) for name in UNFORGIVEN}}
        else:
            return None
        fill(seed, row)
        return seed

    def _settle(self, seed: Seed, module: nn.Module | None) -> None:
        slot = self._slots[seed.site]
        if seed.stage in ACTIVE_STAGES:
            self._fossils.part(seed.seed_id)
            seed.module = module
            slot.settle(seed)
            seed.census = HookCensus(slot.module)
            return
        if slot.seed is seed:
            slot.settle(None)
        seed.module, seed.unfreed = None, UnfreedMemory(None)

    def _join_again(self, seed: Seed, module: nn.Module) -> None:
        """A fossil that is there stays: others may hold its parameters."""
        if (present := self._fossils.modules().get(seed.seed_id)) is not None:
            copy_into(tensors_of(module), tensors_of(present))
            return
        slot = self._slots[seed.site]
        self._fossils.join_again(slot, seed, module)
        slots = neighbours(self._slots, slot)
        put_in_order(slots[slots.index(slot) :])

    def _row(self, seed: Seed) -> dict[str, Any]:
        blueprint = self.moves.kernels.blueprints.get(seed.blueprint_id)
        return row_of(seed, self._slots[seed.site].shape, "" if blueprint is None else blueprint.digest)

    def _new(self, row: Mapping[str, Any]) -> Seed:
        command = pb.SeedCommand(**{name: row[name] for name in ("seed_id", "blueprint_id", "parameters")})
        return self.moves.new_seed(command, self._slots[row["site"]], row["generation"], Moment(0, 0))

    def _built(self, row: Mapping[str, Any]) -> nn.Module:
        """Of its blueprint, drawing from no generator of the host's."""
        blueprint = self.moves.kernels.blueprints.get(row["blueprint_id"])
        what = f"its seed {row['seed_id']!r} is of blueprint {row['blueprint_id']!r}"
        if blueprint is None:
            raise CheckpointError(f"{what}; blueprints: {', '.join(self.moves.kernels.blueprints)}")
        if row["shape"] is None:
            raise CheckpointError(f"{what}, and does not say what flows through site {row['site']!r}")
        if blueprint.digest != row["digest"]:
            raise CheckpointError(f"{what} with digest {row['digest'][:16]}; here it has {blueprint.digest[:16]}")
        slot = self._slots[row["site"]]
        shape = site_shape(row["shape"], next((each.device for each in self.host.parameters()), torch.device("cpu")))
        with torch.device("cpu"), torch.random.fork_rng(cuda_devices(self.host)):
            try:
                made = guarded(blueprint.build, slot.module, shape.input, shape.output, row["parameters"])
            except RefusedError as error:
                raise CheckpointError(f"{what}: {error}") from error
        if isinstance(made, BlueprintFault):
            raise CheckpointError(f"{what}, which can't be built: {made.detail}")
        return made.to(shape.device)

    def _warm(self, row: Mapping[str, Any], module: nn.Module) -> None:
        """Compile it, where seeds are, before a step runs it: a process that resumes has compiled nothing yet."""
        shape = site_shape(row["shape"], next((each.device for each in module.parameters()), torch.device("cpu")))
        if fault := warmed(self._slots[row["site"]], module, shape):
            raise CheckpointError(f"its seed {row['seed_id']!r} of blueprint {row['blueprint_id']!r}: {fault}")

    def _names(self, row: Mapping[str, Any], module: nn.Module) -> list[str]:
        """Under which the host will know a fossil's tensors."""
        below = self._fossils.name_of(self._slots[row["site"]], row["seed_id"], row["generation"])
        return [f"{below}.{name}" for name in tensors_of(module)]
