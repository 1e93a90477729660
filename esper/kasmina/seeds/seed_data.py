"""One seed as plain data, and filled again from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from esper.errors import CheckpointError
from esper.kasmina.blend import AlphaSchedule, Phase
from esper.kasmina.gates.ring import LossLevel, Ring
from esper.kasmina.seeds.seed import Seed
from esper.kasmina.slots.slot import SiteShape
from esper.leyline import contracts as pb

IDENTITY = ("seed_id", "site", "blueprint_id", "generation")
PLAIN = (
    *("num_looks", "paused", "stage_since_step", "germinated_epoch", "embargo_until_epoch", "violations", "violation"),
    *("fault", "losses_seen", "num_holds", "num_retreats", "auto", "attempts", "tried_at"),
)
ADDED = ("stage_since_epoch", "gate_score")  # older checkpoints lack them
UNFORGIVEN = ("violations", "violation")  # by a rollback, as by its breaker
# Censuses and graphs are of this process's modules: they begin anew.

_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


def row_of(seed: Seed, shape: SiteShape | None, digest: str) -> dict[str, Any]:
    """A seed of a blueprint with this digest, at a site where tensors of this shape flow; tensors are the live ones."""
    return {name: getattr(seed, name) for name in (*IDENTITY, *PLAIN, *ADDED)} | {
        "stage": int(seed.stage),
        "digest": digest,
        "parameters": dict(seed.parameters),
        "shape": None if shape is None else _shape(shape),
        "alpha": seed.alpha,
        "schedule": asdict(seed.schedule),
        "phase": int(seed.phase),
        "loss_before": None if seed.loss_before is None else asdict(seed.loss_before),
        "paired_gain": _bytes(seed.paired_gain),
        "complaint": _bytes(seed.complaint),
        "history": [each.SerializeToString(deterministic=True) for each in seed.history],
        "records_dropped": seed.records_dropped,
        "gates_dropped": seed.gates_dropped,
        "breaker": seed.breaker.state_dict(),
        "meter": seed.meter.as_row(),
        "tensors": None if seed.module is None else tensors_of(seed.module),
    }


def fill(seed: Seed, row: Mapping[str, Any]) -> None:
    """All but history with its counts, breaker, module and slot."""
    older = {"stage_since_epoch": row["germinated_epoch"], "gate_score": 0.0}
    for name in (*PLAIN, *ADDED):
        value = row.get(name, older[name]) if name in ADDED else row[name]
        setattr(seed, name, type(getattr(seed, name))(value))
    seed.stage, seed.parameters = row["stage"], row["parameters"]
    seed.schedule, seed.phase = AlphaSchedule(**row["schedule"]), Phase(row["phase"])
    before = {name: each.to(seed.alpha.device) for name, each in (row["loss_before"] or {}).items()}
    seed.loss_before = LossLevel(**before) if before else None
    seed.paired_gain = _message(pb.PairedGain, row["paired_gain"])
    seed.complaint = _message(pb.SeedRequest, row["complaint"])
    seed.graphs_seen = None
    seed.alpha.copy_(row["alpha"])
    seed.meter.fill_from(row["meter"])


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, those too that a state_dict leaves out."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def same(seed: Seed, row: Mapping[str, Any]) -> bool:
    return all(getattr(seed, name) == row[name] for name in IDENTITY)


def fill_tensors(seed_id: str, module: nn.Module, kept: Mapping[str, Tensor]) -> None:
    """Each in the dtype that it was kept in: the alpha of a fossil is wide beside weights that are not."""
    here = tensors_of(module)
    met, expected = ({name: [*each.shape] for name, each in given.items()} for given in (kept, here))
    if met != expected:
        raise CheckpointError(f"its seed {seed_id!r} has tensors {met}; its blueprint makes {expected}")
    for name, each in here.items():
        each.data = each.data.to(kept[name].dtype)
    copy_into(kept, here)


def copy_into(source: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, each in into.items():
            each.copy_(source[name])


def ring_of(ring: Ring) -> dict[str, Any]:
    return {"total": ring.total, "values": ring.values}


def fill_ring(ring: Ring, kept: Mapping[str, Any]) -> None:
    """One of another size begins anew: the window was set otherwise."""
    if ring.values.shape == kept["values"].shape:
        ring.values.copy_(kept["values"])
        ring.total = kept["total"]


def _shape(shape: SiteShape) -> dict[str, Any]:
    dtypes = {"input_dtype": str(shape.input_dtype), "dtype": str(shape.dtype)}
    return {"input": list(shape.input), "output": list(shape.output)} | dtypes


def site_shape(row: Mapping[str, Any], device: torch.device) -> SiteShape:
    dtypes = _DTYPES[row["input_dtype"]], _DTYPES[row["dtype"]]
    return SiteShape(torch.Size(row["input"]), torch.Size(row["output"]), *dtypes, device)


def _bytes(message: Any) -> bytes | None:
    return None if message is None else message.SerializeToString(deterministic=True)


def _message(kind: Any, raw: bytes | None) -> Any:
    return None if raw is None else kind.FromString(raw)
