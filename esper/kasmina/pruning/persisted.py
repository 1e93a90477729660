"""Masks, a ramp under way and importance as tensors by name, as a checkpoint holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from esper.errors import RefusedError
from esper.kasmina.pruning.importance import ImportanceTracker
from esper.kasmina.pruning.masks import Masks, checked
from esper.kasmina.pruning.messages import bits_of, kept_in
from esper.kasmina.pruning.schedule import Ramp
from esper.kasmina.pruning.units import CHANNEL, HEAD, LAYER, WEIGHT, Key
from esper.leyline import contracts as pb

KINDS: Mapping[str, int] = {"channels": CHANNEL, "heads": HEAD, "layers": LAYER, "weights": WEIGHT}
IMPORTANCE, ORDER, RAMP, WATCH = "importance.", "order.", "ramp", "watch"


def state(
    masks: Mapping[Key, Tensor],
    ramp: Ramp | None,
    order: Mapping[Key, Tensor],
    importance: ImportanceTracker,
    watch: Tensor | None,
) -> dict[str, Tensor]:
    """`channels:`, `heads:` and `layers:` with a name: uint8, 1 where kept; `weights:PARAMETER`: eight to a byte.

    `importance.*`: the sums. `watch`, where a step was looked at: what changes are judged by, float64. While masks are
    watched also `ramp`: its start, length and jump; and `order.*`: what is to be pruned, int64.
    """
    found = {_name(key): _packed(key, kept) for key, kept in masks.items()}
    if ramp is not None:
        found[RAMP] = torch.tensor([ramp.start, ramp.num_steps, ramp.every], device="cpu")
        found |= {ORDER + _name(key): channels.clone() for key, channels in order.items()}
    if watch is not None:
        found[WATCH] = watch
    return found | {IMPORTANCE + name: value for name, value in importance.state().items()}


def masks_in(tensors: Mapping[str, Tensor], masks: Masks) -> dict[Key, Tensor]:
    """The masks of a state, each found fit for the model. Raises RefusedError otherwise."""
    others = (RAMP, WATCH, IMPORTANCE, ORDER)
    plain = {name: each for name, each in tensors.items() if not name.startswith(others)}
    return {key: checked(key, _unpacked(key, values.cpu(), masks), masks) for key, values in _keyed(plain)}


def order_in(tensors: Mapping[str, Tensor], masks: Masks) -> dict[Key, Tensor]:
    """Channels to be pruned, by unit. Raises RefusedError where the model has none of that number."""
    if RAMP not in tensors:
        return {}
    named = {name.removeprefix(ORDER): each for name, each in tensors.items() if name.startswith(ORDER)}
    order = {key: channels.cpu() for key, channels in _keyed(named)}
    for key, channels in order.items():
        known = masks.units[key].num_channels if key in masks.units else 0
        checked(key, torch.ones(max([known, *(channels + 1).tolist()]), dtype=torch.bool, device="cpu"), masks)
    return order


def ramp_in(tensors: Mapping[str, Tensor]) -> Ramp:
    start, num_steps, every = tensors[RAMP].tolist()
    return Ramp(start, num_steps, every)


def watch_in(tensors: Mapping[str, Tensor], size: int) -> Tensor | None:
    """None: an older checkpoint, or of other settings."""
    watch = tensors.get(WATCH)
    return watch.cpu() if watch is not None and watch.shape == (size,) else None


def load_importance(tensors: Mapping[str, Tensor], importance: ImportanceTracker) -> None:
    sums = {name.removeprefix(IMPORTANCE): value for name, value in tensors.items() if name.startswith(IMPORTANCE)}
    if sums.keys() == importance.state().keys():
        importance.load_state(sums)


def _packed(key: Key, kept: Tensor) -> Tensor:
    if key[1] != WEIGHT:
        return kept.to(torch.uint8)
    return torch.tensor(list(bits_of(kept)), dtype=torch.uint8, device="cpu")


def _unpacked(key: Key, values: Tensor, masks: Masks) -> Tensor:
    if key[1] != WEIGHT:
        return values.bool()
    num_weights = masks.units[key].num_channels if key in masks.units else 0
    fits = len(values) == -(-num_weights // 8)
    return kept_in(values, num_weights if fits else 8 * len(values))


def _name(key: Key) -> str:
    words = {kind: word for word, kind in KINDS.items()}
    return f"{words[key[1]]}:{key[0]}"


def _keyed(tensors: Mapping[str, Tensor]) -> Iterator[tuple[Key, Tensor]]:
    for name, values in tensors.items():
        word, _, parameter = name.partition(":")
        if word not in KINDS:
            detail = (
                f"{name!r} is no entry of a pruning state; expected one of {', '.join(KINDS)}, a colon, a parameter"
            )
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)
        yield (parameter, KINDS[word]), values
