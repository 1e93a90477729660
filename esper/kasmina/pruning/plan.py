"""Which channels and heads a run could do without, from what it says that they are worth. For controllers: no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from esper.errors import SettingError
from esper.leyline import contracts as pb

MODULE = pb.PruningMaskType.PRUNING_MASK_LAYER  # prunes a module as a whole
CRITERIA = ("taylor", "fisher", "gradient_norm")


def plan(
    requests: Iterable[pb.StructuralPruningRequest],
    ratio: float,
    *,
    criterion: str = "taylor",
    only: Collection[str] = (),
    leave: Collection[str] = (),
) -> pb.StructuralPruningResponse:
    """Masks that prune the least important share `ratio` of each layer, rounded down; never a layer's last one.

    `requests` are all parts of one checkpoint, `only` the parameters that may be pruned (none: all), `leave` those
    that are not. Whole modules go only where `only` names them: the least important share of those. Layers without a
    finite measurement are left alone. Raises SettingError for a ratio outside 0..1 or an unknown criterion.
    """
    if not 0 <= ratio < 1:
        raise SettingError("ratio", ratio, "a share from 0 up to 1")
    if criterion not in CRITERIA:
        raise SettingError("criterion", criterion, f"one of {', '.join(CRITERIA)}")
    parts = list(requests)
    measured = _measured(parts, criterion, only, leave)
    channels = [(each, _least(getattr(each, criterion), ratio)) for each in measured if each.mask_type != MODULE]
    masks = [_mask(each, pruned) for each, pruned in channels if pruned]
    modules = [each for each in measured if each.mask_type == MODULE] if only else []
    worth = [getattr(each, criterion)[0] for each in modules]
    masks += [_mask(modules[place], [0]) for place in _least(worth, ratio)]
    request_id = parts[-1].request_id if parts else ""
    return pb.StructuralPruningResponse(request_id=request_id, pruning_masks=masks, validation_passed=True)


def _measured(
    parts: Iterable[pb.StructuralPruningRequest], criterion: str, only: Collection[str], leave: Collection[str]
) -> list[pb.ChannelImportance]:
    """Of what may be pruned."""
    named = [each for part in parts for each in part.importance if not only or each.parameter in only]
    meant = [each for each in named if each.parameter not in leave]
    return [each for each in meant if all(map(math.isfinite, getattr(each, criterion)))]


def _least(values: Sequence[float], ratio: float) -> list[int]:
    """Places of the smallest."""
    num = min(math.floor(ratio * len(values) + 1e-9), len(values) - 1)
    return sorted(range(len(values)), key=values.__getitem__)[: max(num, 0)]


def _mask(each: pb.ChannelImportance, pruned: Collection[int]) -> pb.PruningMask:
    num = len(each.taylor)
    bits = (1 << num) - 1
    for channel in pruned:
        bits &= ~(1 << channel)
    return pb.PruningMask(
        parameter=each.parameter,
        mask_type=each.mask_type,
        dim=each.dim,
        kept=bits.to_bytes(-(-num // 8), "little"),
        num_channels=num,
    )
