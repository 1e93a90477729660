"""Which operations a block asks of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each in `calls`, below autograd, by whoever it is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.calls.append(func)
        return func(*args, **(kwargs or {}))
