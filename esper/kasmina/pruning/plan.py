"""Which channels and heads a run could do without, from what it says that they are worth. For controllers: no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from esper.errors import SettingError
from esper.leyline import contracts as pb

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
    response = pb.StructuralPruningResponse(validation_passed=True)
    whole: list[pb.ChannelImportance] = []
    for request in requests:
        response.request_id = request.request_id
        for each in request.importance:
            values = list(getattr(each, criterion))
            is_meant = (not only or each.parameter in only) and each.parameter not in leave
            if not is_meant or not all(map(math.isfinite, values)):
                continue
            if each.mask_type == pb.PruningMaskType.PRUNING_MASK_LAYER:
                whole += [each] if only else []
            elif pruned := _least(values, ratio):
                response.pruning_masks.append(_mask(each, pruned))
    worth = [getattr(each, criterion)[0] for each in whole]
    response.pruning_masks.extend(_mask(whole[place], [0]) for place in _least(worth, ratio))
    return response


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
