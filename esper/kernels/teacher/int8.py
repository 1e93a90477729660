"""Linear weights as int8 with one scale a row, by torchao: a fourth of float32, half of float16."""

from __future__ import annotations

from importlib.util import find_spec

from torch import nn

from esper.errors import SettingError


def available() -> bool:
    return find_spec("torchao") is not None


def require() -> None:
    if not available():
        raise SettingError("teacher mode", "int8", "torchao to be installed: pip install 'esper[torchao]'")


def quantize(linear: nn.Linear) -> None:
    """Replace the weight of one frozen layer, in place."""
    # Here, since it takes 3 s to import and few teachers need it.
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(linear, Int8WeightOnlyConfig())
    for parameter in linear.parameters():
        parameter.requires_grad_(False)


def num_bytes(linear: nn.Linear, scale_bytes: int) -> int:
    """What its weight will take: a byte an element, and a scale and a zero point a row."""
    return linear.weight.numel() + linear.out_features * (scale_bytes + 1)
