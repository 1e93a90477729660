"""Which channels and heads a run could do without, from what it says that they are worth. For controllers: no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from esper.errors import SettingError
from esper.leyline import contracts as pb

CRITERIA = ("taylor", "fisher", "gradient_norm")


def plan(
    requests: Iterable[pb.StructuralPruningRequest],
    ratio: float,
    *,
    criterion: str = "taylor",
    only: Collection[str] = (),
) -> pb.StructuralPruningResponse:
    """Masks that prune the least important share `ratio` of each layer, rounded down; never a layer's last one.

    `requests` are all parts of one checkpoint, `only` the parameters that may be pruned (none: all). Layers without a
    finite measurement are left alone. Raises SettingError for a ratio outside 0..1 or an unknown criterion.
    """
    if not 0 <= ratio < 1:
        raise SettingError("ratio", ratio, "a share from 0 up to 1")
    if criterion not in CRITERIA:
        raise SettingError("criterion", criterion, f"one of {', '.join(CRITERIA)}")
    response = pb.StructuralPruningResponse(validation_passed=True)
    for request in requests:
        response.request_id = request.request_id
        for each in request.importance:
            values = list(getattr(each, criterion))
            num = min(math.floor(ratio * len(values) + 1e-9), len(values) - 1)
            if num > 0 and all(map(math.isfinite, values)) and (not only or each.parameter in only):
                response.pruning_masks.append(_mask(each, sorted(range(len(values)), key=values.__getitem__)[:num]))
    return response


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
