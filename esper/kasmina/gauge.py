"""Weighs one call of a seed beside its host: which samples may take its share, and the figures to remember."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from esper.kasmina.isolation import TINY, sample_norms
from esper.kasmina.meter import Meter

INF = float("inf")


@dataclass(frozen=True, slots=True)
class Gauge:
    """Of one call; nothing of it is differentiated, and nothing is read from the device."""

    value: Tensor  # h + alpha * delta, in h's shape
    sound: Tensor  # per sample, shaped to broadcast against h
    figures: Tensor  # a row of the meter
    drift: Tensor  # abs(norm(y) / norm(h) - 1) for the blended value y


def gauge(h: Tensor, delta: Tensor, alpha: Tensor, limit: float, meter: Meter, *, shadowing: bool) -> Gauge:
    """A sample is sound where h + alpha * delta is finite, and norm(delta) <= limit * norm(h).

    Everything is drawn from three norms per sample, so that h and delta are passed over three times in all. A norm is
    finite only if every element is; one whose squares overflow (beyond 1e19) counts as not finite. A host that is not
    finite itself is not the seed's doing.
    """
    value = h + alpha.to(h.dtype) * delta
    of_h, of_delta, of_value = sample_norms(h), sample_norms(delta), sample_norms(value)
    finite, small = of_value < INF, of_delta <= limit * of_h  # of a norm, < inf is isfinite in one pass
    sound = finite & small
    num_lost = (of_h < INF).logical_and_(~finite).sum()
    strike = (num_lost > 0).logical_or_(small.sum() <= (small.numel() - 1) // 2)
    norm_of_h = _whole(of_h).clamp_min(TINY)
    figures = meter.row(_whole(of_delta) / norm_of_h, strike, num_lost, shadowing=shadowing)
    drift = (_whole(torch.where(sound, of_value, of_h)) / norm_of_h - 1.0).abs()
    return Gauge(value, sound, figures, drift)


def _whole(norms: Tensor) -> Tensor:
    """The norm of all from the norms of the parts."""
    value: Tensor = torch.linalg.vector_norm(norms)
    return value
