"""Why a blueprint does not fit a site: one reason in words, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from esper.kernels.layout import Layout, channels_first

Misfit = Callable[[nn.Module, Sequence[int], Sequence[int], Mapping[str, float]], str]


def fits_anywhere(
    module: nn.Module, input_shape: Sequence[int], output_shape: Sequence[int], parameters: Mapping[str, float]
) -> str:
    return ""


def needs_channels(
    module: nn.Module, input_shape: Sequence[int], output_shape: Sequence[int], parameters: Mapping[str, float]
) -> str:
    """A batch dimension and one of features; none of them empty."""
    if len(output_shape) < 2:
        return "the output needs a dimension of samples and one of channels"
    return "" if all(output_shape) else "the output is empty"


def needs_places(
    module: nn.Module, input_shape: Sequence[int], output_shape: Sequence[int], parameters: Mapping[str, float]
) -> str:
    """[batch, channels, one to three dimensions of places], as of a convolution."""
    if reason := needs_channels(module, input_shape, output_shape, parameters):
        return reason
    if not 3 <= len(output_shape) <= 5:
        return f"the output has {len(output_shape)} dimensions; expected [batch, channels, places], 3 to 5 of them"
    return "" if channels_first(module, output_shape) else "the output has its channels last; expected them second"


def needs_tokens(
    module: nn.Module, input_shape: Sequence[int], output_shape: Sequence[int], parameters: Mapping[str, float]
) -> str:
    """[batch, tokens, features], features a multiple of the heads."""
    if reason := needs_channels(module, input_shape, output_shape, parameters):
        return reason
    if len(output_shape) != 3 or channels_first(module, output_shape):
        return "the output is not [batch, tokens, features]"
    if any(getattr(part, "batch_first", True) is False for part in module.modules()):
        return "the module was built with batch_first=False, so its tokens come first; expected the batch first"
    width, heads = Layout.of(module, input_shape, output_shape).num_inputs, int(parameters["heads"])
    return "" if width % heads == 0 else f"{heads} heads do not divide the {width} features that it would read"
