"""Ranges of what runs and controllers say of pruning."""

from __future__ import annotations

import math

from esper.leyline import contracts as pb
from esper.leyline.validate import bounds

NUM_UNITS = 65_536
NUM_MASKS = 4_096
NUM_CHANNELS = 1 << 20


def pruning_request(message: pb.StructuralPruningRequest) -> None:
    """Asks for statistics, or gives them. A statistic may be NaN: that is news."""
    bounds.name("request_id", message.request_id)
    bounds.text("checkpoint_id", message.checkpoint_id, bounds.NAME_BYTES)
    bounds.known("phase", message.phase, pb.PruningPhase.DESCRIPTOR)
    bounds.numbers("safety_constraints", message.safety_constraints)
    bounds.count("importance", message.importance, NUM_UNITS)
    for each in message.importance:
        bounds.name("parameter", each.parameter, bounds.NAME_BYTES)
        bounds.known("mask_type", each.mask_type, pb.PruningMaskType.DESCRIPTOR)
        lengths = {len(values) for values in (each.gradient_norm, each.taylor, each.fisher)}
        if len(lengths) != 1:
            raise bounds.refuse(f"importance of {each.parameter!r}", sorted(lengths), "as many values of each kind")
    if message.importance and message.part >= message.num_parts:
        raise bounds.refuse("part", message.part, f"below num_parts {message.num_parts}")


def pruning_response(message: pb.StructuralPruningResponse) -> None:
    """Masks whose bits are as many as they say."""
    bounds.name("request_id", message.request_id)
    bounds.count("pruning_masks", message.pruning_masks, NUM_MASKS)
    for mask in message.pruning_masks:
        _mask(mask)
    bounds.text("decision_report", message.decision_report, bounds.SENTENCE_BYTES)
    bounds.text("rollback_reason", message.rollback_reason, bounds.SENTENCE_BYTES)
    bounds.finite("processing_time_ms", message.processing_time_ms)
    if message.rollback_required and message.pruning_masks:
        raise bounds.refuse("pruning_masks", len(message.pruning_masks), "none where rollback_required lifts the last")


def _mask(mask: pb.PruningMask) -> None:
    bounds.name("parameter", mask.parameter, bounds.NAME_BYTES)
    bounds.known("mask_type", mask.mask_type, pb.PruningMaskType.DESCRIPTOR)
    if not 0 < mask.num_channels <= NUM_CHANNELS:
        raise bounds.refuse("num_channels", mask.num_channels, f"from 1 to {NUM_CHANNELS}")
    num_bytes = math.ceil(mask.num_channels / 8)
    if len(mask.kept) != num_bytes:
        raise bounds.refuse(f"bytes of the mask of {mask.parameter!r}", len(mask.kept), f"{num_bytes}")
    if spare := mask.kept[-1] >> (mask.num_channels % 8 or 8):
        raise bounds.refuse(f"mask of {mask.parameter!r}", spare, "no bit set beyond num_channels")
