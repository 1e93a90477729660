"""Goes through a host's modules without the generators of torch, which nest as deep as the modules do."""

from __future__ import annotations

from torch import nn


def walked(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Each module once, with what stands before the names of its tensors; those nearer to the root first."""
    met, found = {id(root)}, [("", root)]
    for prefix, module in found:  # which grows
        for name, child in module._modules.items():
            if child is not None and id(child) not in met:
                met.add(id(child))
                found.append((f"{prefix}{name}.", child))
    return found
