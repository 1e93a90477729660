"""Where in its epoch a loop stands, so that a resumed one goes on behind the batches that it has trained on."""

from __future__ import annotations

from typing import Any

from esper.tolaria.checkpoints.rank import Stateful

EPOCH_BEGAN, LOADER = "epoch_began", "loader"


class LoopPosition:
    """The first step of this epoch, and the loader's state if attach() was given one. Goes with checkpoints."""

    def __init__(self, loader: Stateful | None = None) -> None:
        self.epoch_began = 1
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        return {EPOCH_BEGAN: self.epoch_began, LOADER: None if self._loader is None else self._loader.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        """Also a loader's alone, as checkpoints had it before."""
        if isinstance(state, dict) and EPOCH_BEGAN in state:
            self.epoch_began, state = int(state[EPOCH_BEGAN]), state.get(LOADER)
        if self._loader is not None and state is not None:
            self._loader.load_state_dict(state)
