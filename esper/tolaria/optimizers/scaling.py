"""What a GradScaler did to the backward whose gradients the seeds share."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def step_was_skipped(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """A fused optimizer runs its hooks on a skipped step too, so this is read, not inferred."""
    return any(float(found) > 0 for found in scaler._found_inf_per_device(optimizer).values())


@torch.no_grad()
def unscale(scaler: torch.amp.GradScaler, gradients: Sequence[torch.Tensor]) -> None:
    """Divide by the scale of this backward, as the scaler does with its optimizer's own; update() comes later."""
    scale = scaler._get_scale_async()
    assert scale is not None  # a scaler whose step was taken has one
    inverse = scale.double().reciprocal().float()
    for device in {gradient.device for gradient in gradients}:
        there = [gradient for gradient in gradients if gradient.device == device]
        torch._foreach_mul_(there, inverse.to(device))
