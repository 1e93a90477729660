"""Seeds as plain data, for a checkpoint, and how they are made again from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import CheckpointError, RefusedError
from esper.kasmina.blend import AlphaSchedule, Phase
from esper.kasmina.fossil import Fossils
from esper.kasmina.hooks import HookCensus, Remains
from esper.kasmina.kept import withdraw
from esper.kasmina.meter import LossLevel, Meter, Ring
from esper.kasmina.moves import Moment, Moves
from esper.kasmina.paired import cuda_devices
from esper.kasmina.seed import Seed
from esper.kasmina.sites import neighbours, put_in_order
from esper.kasmina.slot import BlueprintFault, SiteShape, Slot, guarded
from esper.kernels.residual import Scaled
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import ACTIVE_STAGES, FOSSILIZED

IDENTITY = ("seed_id", "site", "blueprint_id", "generation")
PLAIN = (
    *("num_looks", "paused", "stage_since_step", "germinated_epoch", "embargo_until_epoch", "violations", "violation"),
    *("fault", "losses_seen", "num_holds", "num_retreats", "auto", "attempts", "tried_at"),
)
# Breakers count seconds of this process, censuses and graphs are of its modules: they begin anew.

_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


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
            "losses": _ring(self.losses),
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
                modules[seed_id] = Scaled(module, torch.zeros(())) if fossil["scaled"] else module
                _fill_tensors(seed_id, modules[seed_id], fossil["tensors"])
                names += self._names(row, modules[seed_id])
            elif row["tensors"] is not None:
                modules[seed_id] = self._built(row)
                _fill_tensors(seed_id, modules[seed_id], row["tensors"])
        return MadeSeeds(self, dumped, modules, names)

    def adopt(self, made: MadeSeeds, step: int) -> None:
        """Undo what happened to the seeds since, except culls; in a new process, let all be as they were."""
        dumped, known = made.dumped, self.moves.known
        for seed in [each for each in known.values() if _alive(each.stage)]:
            row = dumped["seeds"].get(seed.seed_id)
            if row is None or not _same(seed, row) or not _alive(row["stage"]):
                withdraw(seed, self._slots[seed.site], self._fossils, step)
        back = [one for seed_id, row in dumped["seeds"].items() if (one := self._filled(seed_id, row, step))]
        for seed in back:
            self._settle(seed, made.modules.get(seed.seed_id))
        for seed_id in dumped["fossils"]:
            if known[seed_id] in back:
                self._join_again(known[seed_id], made.modules[seed_id])
        for name, generation in dumped["slots"].items():
            if name in self._slots:
                self._slots[name].generation = max(self._slots[name].generation, generation)
        _fill_ring(self.losses, dumped["losses"])

    def _filled(self, seed_id: str, row: Mapping[str, Any], step: int) -> Seed | None:
        """The seed as it was; None where it failed since, or gave way to another of its name."""
        seed = self.moves.known.get(seed_id)
        if seed is None:
            seed = self.moves.known[seed_id] = self._new(row)
            seed.history = [pb.StageRecord.FromString(each) for each in row["history"]]
        elif _same(seed, row) and _alive(seed.stage):
            seed.record(row["stage"], step, detail="rolled back")
        else:
            return None
        self._fill(seed, row)
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
        seed.module, seed.remains = None, Remains(None)

    def _join_again(self, seed: Seed, module: nn.Module) -> None:
        """A fossil that is there stays: others may hold its parameters."""
        if (present := self._fossils.modules().get(seed.seed_id)) is not None:
            _copy(tensors_of(module), tensors_of(present))
            return
        slot = self._slots[seed.site]
        self._fossils.join_again(slot, seed, module)
        slots = neighbours(self._slots, slot)
        put_in_order(slots[slots.index(slot) :])

    def _row(self, seed: Seed) -> dict[str, Any]:
        slot = self._slots[seed.site]
        blueprint = self.moves.kernels.blueprints.get(seed.blueprint_id)
        return {name: getattr(seed, name) for name in (*IDENTITY, *PLAIN)} | {
            "stage": int(seed.stage),
            "digest": blueprint.digest if blueprint is not None else "",
            "parameters": dict(seed.parameters),
            "shape": None if slot.shape is None else _shape(slot.shape),
            "alpha": seed.alpha,
            "schedule": asdict(seed.schedule),
            "phase": int(seed.phase),
            "loss_before": None if seed.loss_before is None else asdict(seed.loss_before),
            "paired_gain": _bytes(seed.paired_gain),
            "complaint": _bytes(seed.complaint),
            "history": [each.SerializeToString(deterministic=True) for each in seed.history],
            "meter": {name: _ring(each) if isinstance(each, Ring) else each for name, each in _metered(seed.meter)},
            "tensors": None if seed.module is None else tensors_of(seed.module),
        }

    def _new(self, row: Mapping[str, Any]) -> Seed:
        command = pb.SeedCommand(**{name: row[name] for name in ("seed_id", "blueprint_id", "parameters")})
        return self.moves.new_seed(command, self._slots[row["site"]], row["generation"], Moment(0, 0))

    def _fill(self, seed: Seed, row: Mapping[str, Any]) -> None:
        for name in PLAIN:
            setattr(seed, name, type(getattr(seed, name))(row[name]))
        seed.stage, seed.parameters = row["stage"], row["parameters"]
        seed.schedule, seed.phase = AlphaSchedule(**row["schedule"]), Phase(row["phase"])
        seed.loss_before = None if row["loss_before"] is None else LossLevel(**row["loss_before"])
        seed.paired_gain = _message(pb.PairedGain, row["paired_gain"])
        seed.complaint = _message(pb.SeedRequest, row["complaint"])
        seed.graphs_seen = None
        seed.alpha.copy_(row["alpha"])
        for name, value in _metered(seed.meter):
            kept = row["meter"][name]
            if isinstance(value, Ring):
                _fill_ring(value, kept)
            else:
                setattr(seed.meter, name, kept if not isinstance(value, Tensor) else _like(kept, value))

    def _built(self, row: Mapping[str, Any]) -> nn.Module:
        """Of its blueprint, drawing from no generator of the host's."""
        blueprint = self.moves.kernels.blueprints.get(row["blueprint_id"])
        what = f"its seed {row['seed_id']!r} is of blueprint {row['blueprint_id']!r}"
        if blueprint is None or row["shape"] is None:
            raise CheckpointError(f"{what}; blueprints: {', '.join(self.moves.kernels.blueprints)}")
        if blueprint.digest != row["digest"]:
            raise CheckpointError(f"{what} with digest {row['digest'][:16]}; here it has {blueprint.digest[:16]}")
        slot = self._slots[row["site"]]
        shape = _site_shape(row["shape"], next((each.device for each in self.host.parameters()), torch.device("cpu")))
        with torch.random.fork_rng(cuda_devices(self.host)):
            try:
                made = guarded(blueprint.build, slot.module, shape.input, shape.output, row["parameters"])
            except RefusedError as error:
                raise CheckpointError(f"{what}: {error}") from error
        if isinstance(made, BlueprintFault):
            raise CheckpointError(f"{what}, which can't be built: {made.detail}")
        return made.to(shape.device)

    def _names(self, row: Mapping[str, Any], module: nn.Module) -> list[str]:
        """Under which the host will know a fossil's tensors."""
        below = self._fossils.name_of(self._slots[row["site"]], row["seed_id"], row["generation"])
        return [f"{below}.{name}" for name in tensors_of(module)]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, those too that a state_dict leaves out."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _alive(stage: int) -> bool:
    return stage in ACTIVE_STAGES or stage == FOSSILIZED


def _same(seed: Seed, row: Mapping[str, Any]) -> bool:
    return all(getattr(seed, name) == row[name] for name in IDENTITY)


def _fill_tensors(seed_id: str, module: nn.Module, kept: Mapping[str, Tensor]) -> None:
    """In the dtype that they were kept in."""
    if (narrow := next((each.dtype for each in kept.values() if each.is_floating_point()), None)) is not None:
        module.to(narrow)
    here = tensors_of(module)
    met, expected = ({name: [*each.shape] for name, each in given.items()} for given in (kept, here))
    if met != expected:
        raise CheckpointError(f"its seed {seed_id!r} has tensors {met}; its blueprint makes {expected}")
    _copy(kept, here)


def _copy(source: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, each in into.items():
            each.copy_(source[name])


_COUNTED = (Ring, Tensor, int)


def _metered(meter: Meter) -> list[tuple[str, Any]]:
    """What a meter has counted; the rest is what it was built with."""
    return [(name, each) for name, each in vars(meter).items() if name != "window" and isinstance(each, _COUNTED)]


def _like(kept: Tensor, value: Tensor) -> Tensor:
    made = kept.to(value.device, value.dtype)
    return made.requires_grad_(value.requires_grad)


def _ring(ring: Ring) -> dict[str, Any]:
    return {"total": ring.total, "values": ring.values}


def _fill_ring(ring: Ring, kept: Mapping[str, Any]) -> None:
    """One of another size begins anew: the window was set otherwise."""
    if ring.values.shape == kept["values"].shape:
        ring.values.copy_(kept["values"])
        ring.total = kept["total"]


def _shape(shape: SiteShape) -> dict[str, Any]:
    dtypes = {"input_dtype": str(shape.input_dtype), "dtype": str(shape.dtype)}
    return {"input": list(shape.input), "output": list(shape.output)} | dtypes


def _site_shape(row: Mapping[str, Any], device: torch.device) -> SiteShape:
    dtypes = _DTYPES[row["input_dtype"]], _DTYPES[row["dtype"]]
    return SiteShape(torch.Size(row["input"]), torch.Size(row["output"]), *dtypes, device)


def _bytes(message: Any) -> bytes | None:
    return None if message is None else message.SerializeToString(deterministic=True)


def _message(kind: Any, raw: bytes | None) -> Any:
    return None if raw is None else kind.FromString(raw)
