"""Parameters whose gradients are sparse, and what torch's optimizers can't do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

from esper.errors import RefusedError, listed
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.owners import Named


def sparse_in(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of a model, by name: the tables that say so of themselves."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            yield f"{name}.weight" if name else "weight", module.weight


def require_dense(
    optimizer_id: str, values: Mapping[str, float], sparse: Named, stepped: Iterable[torch.Tensor]
) -> None:
    """RefusedError where what is `stepped` would decay though it is `sparse`: torch raises over that in the step."""
    decay = values.get("weight_decay")
    among = {*stepped} if decay else set()
    if found := [name for name, parameter in sparse if parameter in among]:
        detail = (
            f"weight_decay of optimizer {optimizer_id!r} is {decay:g}; "
            f"expected 0: gradients of {listed(found)} are sparse, and torch decays no such parameters"
        )
        raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
