"""States of the generators that a training step draws from."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Randomness:
    """Of torch, python and numpy."""

    cpu: torch.Tensor
    cuda: list[torch.Tensor]
    python: tuple[Any, ...]
    numpy: dict[str, Any]

    @classmethod
    def now(cls) -> Randomness:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        numpy = np.random.get_state(legacy=False)
        assert isinstance(numpy, dict)  # as asked for
        return cls(torch.get_rng_state(), cuda, random.getstate(), numpy)

    def as_data(self) -> dict[str, Any]:
        """What makes it again, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def put_back(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
