"""Masks and importance as tensors by name, as a checkpoint holds them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from esper.errors import RefusedError
from esper.kasmina.pruning.importance import ImportanceTracker
from esper.kasmina.pruning.masks import Masks, checked
from esper.kasmina.pruning.units import CHANNEL, HEAD, Key
from esper.leyline import contracts as pb

KINDS: Mapping[str, int] = {"channels": CHANNEL, "heads": HEAD}
IMPORTANCE = "importance."


def state(masks: Masks, importance: ImportanceTracker) -> dict[str, Tensor]:
    """`channels:PARAMETER` and `heads:PARAMETER`: uint8, 1 where kept; `importance.*`: the sums."""
    words = {kind: word for word, kind in KINDS.items()}
    found = {f"{words[kind]}:{name}": kept.to(torch.uint8) for (name, kind), kept in masks.now().items()}
    return found | {IMPORTANCE + name: value for name, value in importance.state().items()}


def masks_in(tensors: Mapping[str, Tensor], masks: Masks) -> dict[Key, Tensor]:
    """The masks of a state, each found fit for the model. Raises RefusedError otherwise."""
    found: dict[Key, Tensor] = {}
    for name, values in tensors.items():
        if name.startswith(IMPORTANCE):
            continue
        word, _, parameter = name.partition(":")
        if word not in KINDS:
            detail = (
                f"{name!r} is no entry of a pruning state; expected one of {', '.join(KINDS)}, a colon, a parameter"
            )
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)
        key = (parameter, KINDS[word])
        found[key] = checked(key, values.cpu().bool(), masks, max_ratio=1.0)
    return found


def load_importance(tensors: Mapping[str, Tensor], importance: ImportanceTracker) -> None:
    sums = {name.removeprefix(IMPORTANCE): value for name, value in tensors.items() if name.startswith(IMPORTANCE)}
    if sums.keys() == importance.state().keys():
        importance.load_state(sums)
