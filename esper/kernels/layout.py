"""How a site's tensors are laid out: where their channels stand, and what a seed there reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

# Modules whose output has its channels in dimension 1, with the attribute that counts them.
FIRST: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.modules.conv._ConvNd, "out_channels"),
    (nn.modules.batchnorm._NormBase, "num_features"),
    (nn.GroupNorm, "num_channels"),
)
# And in the last dimension.
LAST: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.Linear, "out_features"),
    (nn.LayerNorm, "normalized_shape"),
    (nn.RMSNorm, "normalized_shape"),
    (nn.Embedding, "embedding_dim"),
    (nn.EmbeddingBag, "embedding_dim"),
    (nn.MultiheadAttention, "embed_dim"),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Decided once, when a seed is built: compiled code then has nothing to guard on."""

    ndim: int
    channels_first: bool
    reads_input: bool  # the site's input, where it lines up with its output place by place; else the output
    num_inputs: int  # channels that a seed reads by this rule
    num_outputs: int

    @classmethod
    def of(cls, module: nn.Module, input_shape: Sequence[int], output_shape: Sequence[int]) -> Layout:
        """Shapes as they were seen, batch first; the output has at least two dimensions."""
        first = channels_first(module, output_shape)
        aligned = not isinstance(module, nn.Embedding | nn.EmbeddingBag) and len(input_shape) == len(output_shape)
        aligned = aligned and _places(input_shape, first) == _places(output_shape, first)
        channel = 1 if first else -1
        read = input_shape if aligned else output_shape
        return cls(len(output_shape), first, aligned, read[channel], output_shape[channel])

    def source(self, x: Tensor, h: Tensor) -> Tensor:
        return x if self.reads_input else h

    def features_last(self, tensor: Tensor) -> Tensor:
        return tensor.movedim(1, -1) if self.channels_first else tensor

    def as_output(self, delta: Tensor) -> Tensor:
        return delta.movedim(-1, 1) if self.channels_first else delta

    def per_channel(self, vector: Tensor) -> Tensor:
        """[channels] or [batch, channels], shaped to broadcast against the output."""
        return vector[(..., *(None,) * (self.ndim - 2))] if self.channels_first else vector


def channels_first(module: nn.Module, output_shape: Sequence[int]) -> bool:
    """By the last part of the module that says so and whose width fits; else images do, and sequences do not."""
    if len(output_shape) < 3:
        return False
    for part in reversed(list(module.modules())):
        if _counts(part, FIRST) == output_shape[1] and _ndim(part) in (None, len(output_shape)):
            return True
        if _counts(part, LAST) == output_shape[-1]:
            return False
    return len(output_shape) >= 4


def _places(shape: Sequence[int], first: bool) -> tuple[int, ...]:
    return (shape[0], *shape[2:]) if first else tuple(shape[:-1])


def _counts(part: nn.Module, table: Sequence[tuple[type[nn.Module], str]]) -> int | None:
    for kind, name in table:
        if isinstance(part, kind):
            count = getattr(part, name)
            return int(count[-1] if isinstance(count, tuple) else count)
    return None


def _ndim(part: nn.Module) -> int | None:
    """Dimensions of a part's output, where it fixes them."""
    return len(part.kernel_size) + 2 if isinstance(part, nn.modules.conv._ConvNd) else None
