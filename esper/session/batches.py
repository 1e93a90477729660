"""Where in its epoch a loop stands, so that a resumed one goes on behind the batches that it has trained on."""

from __future__ import annotations

from typing import Any

from esper.session.carried_out import Orders
from esper.tolaria.checkpoints.rank import Stateful

EPOCH_BEGAN, LOADER, NUM_ORDERS, ORDERS = "epoch_began", "loader", "num_orders", "orders"


class LoopPosition:
    """The first step of this epoch, the orders that led here, and the loader's state if attach() was given one.

    Goes with checkpoints.
    """

    def __init__(self, loader: Stateful | None = None) -> None:
        self.epoch_began, self.orders = 1, Orders()
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        loader = None if self._loader is None else self._loader.state_dict()
        orders = {NUM_ORDERS: self.orders.num, ORDERS: self.orders.digest.hex()}
        return {EPOCH_BEGAN: self.epoch_began, LOADER: loader, **orders}

    def load_state_dict(self, state: Any) -> None:
        """Also a loader's alone, as checkpoints had it before, or without the orders."""
        self.orders.num, self.orders.digest = 0, b""
        if isinstance(state, dict) and EPOCH_BEGAN in state:
            self.orders.num = int(state.get(NUM_ORDERS, 0))
            self.orders.digest = bytes.fromhex(state.get(ORDERS, ""))
            self.epoch_began, state = int(state[EPOCH_BEGAN]), state.get(LOADER)
        if self._loader is not None and state is not None:
            self._loader.load_state_dict(state)
