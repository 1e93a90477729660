"""Adds a trained seed to the weights of its site, where the sum is the same function."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d


def fold_matrix(module: nn.Module, matrix: Tensor, *, reads_input: bool) -> bool:
    """Add delta = matrix @ (x or h), place by place; matrix is [outputs, inputs]. False where that is not exact."""
    if not owns(module, "weight"):
        return False
    if not reads_input:
        return _compose(module, matrix)
    if type(module) is nn.Linear:
        return _add(module.weight, matrix)
    return fold_taps(module, matrix)


def fold_taps(module: nn.Module, taps: Tensor) -> bool:
    """Add a convolution of x ("same" padding by zeros, stride 1); taps are [outputs, inputs, *kernel] or a matrix."""
    if type(module) not in CONVOLUTIONS or not owns(module, "weight"):
        return False
    conv: Conv = module  # type: ignore[assignment]
    reach = [size // 2 for size in taps.shape[2:]] or [0] * len(conv.kernel_size)
    wide = any(reach)
    plain = not wide or (conv.padding_mode == "zeros" and set(conv.dilation) == {1})
    fits = all(size // 2 >= near for size, near in zip(conv.kernel_size, reach, strict=True))
    if not (plain and fits and _keeps_places(conv)):
        return False
    centre = [slice(size // 2 - near, size // 2 + near + 1) for size, near in zip(conv.kernel_size, reach, strict=True)]
    window = conv.weight[(slice(None), slice(None), *centre)]
    return _add(window, taps if wide else taps.reshape(*taps.shape[:2], *(1,) * len(reach)))


def fold_affine(module: nn.Module, scale: Tensor, shift: Tensor) -> bool:
    """Add delta = scale * h + shift, per channel, to the last thing that `module` does. It needs a bias for that."""
    if type(module) not in (nn.Linear, *CONVOLUTIONS, *NORMS) or not (owns(module, "weight") and owns(module, "bias")):
        return False
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    assert weight is not None  # both are owned
    assert bias is not None
    if bias.shape != scale.shape:
        return False
    with torch.no_grad():
        weight.mul_(1 + scale.view(-1, *(1,) * (weight.ndim - 1)))
        bias.mul_(1 + scale).add_(shift)
    return True


def owns(module: nn.Module, name: str) -> bool:
    """Whether the tensor is a parameter itself: under weight_norm or pruning it is made anew in every forward."""
    return module._parameters.get(name) is not None


def _compose(module: nn.Module, matrix: Tensor) -> bool:
    """delta = matrix @ h: every output of the module takes part, its bias too."""
    mixes = type(module) is nn.Linear or (type(module) in CONVOLUTIONS and getattr(module, "groups", 0) == 1)
    weight, bias = module._parameters["weight"], module._parameters.get("bias")
    if not mixes or weight is None or matrix.shape != (weight.shape[0], weight.shape[0]):
        return False
    with torch.no_grad():
        weight.add_(torch.tensordot(matrix, weight, dims=1))
        if bias is not None:
            bias.add_(matrix @ bias)
    return True


def _keeps_places(conv: Conv) -> bool:
    """Whether the middle tap of the kernel meets the place that is written."""
    spans = [step * (size - 1) for step, size in zip(conv.dilation, conv.kernel_size, strict=True)]
    odd = all(size % 2 for size in conv.kernel_size)
    same = conv.padding == "same" or [2 * pad for pad in conv.padding] == spans
    return odd and same and conv.groups == 1 and set(conv.stride) == {1}


def _add(weight: Tensor, change: Tensor) -> bool:
    if weight.shape != change.shape:
        return False
    with torch.no_grad():
        weight.add_(change)
    return True
