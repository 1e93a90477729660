"""Makes weights zero where a mask is False, also those that are not finite: a product would leave them so."""

from __future__ import annotations

import torch
from torch import Tensor, nn

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def bits_for(parameter: Tensor, kept: Tensor) -> Tensor | None:
    """The mask as bits to keep, all of an element or none, of the parameter's width; None: there is no such integer."""
    width = INTEGERS.get(parameter.element_size()) if type(parameter) in (Tensor, nn.Parameter) else None
    return None if width is None else -kept.to(width)


def clear(parameter: Tensor, kept: Tensor, bits: Tensor | None) -> None:
    """In place, below no_grad. By bits it takes as long as a product, and by a mask eight to fifteen times that.

    `bits` were made for the parameter; one that was cast since goes by its mask.
    """
    if bits is not None and bits.element_size() == parameter.element_size():
        parameter.detach().view(bits.dtype).bitwise_and_(bits)
    else:
        parameter.masked_fill_(~kept, 0)
