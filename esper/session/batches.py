"""Where in its epoch a loop stands, so that a resumed one goes on behind the batches that it has trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import structlog

from esper.session.carried_out import Orders
from esper.session.loop_state import LoopState
from esper.session.streams import Make, Stream
from esper.tolaria.checkpoints.rank import Stateful
from esper.tolaria.state.randomness import Randomness

log = structlog.get_logger()

T = TypeVar("T")
EPOCH_BEGAN, NUM_BATCHES = "epoch_began", "num_batches"
LOADER, LOOP, NUM_ORDERS, ORDERS = "loader", "loop", "num_orders", "orders"
STREAMS, ODD = "streams", "odd"
OTHER_BATCHES = (
    "a process that resumed met another batch in step {step} than the one before it: its batches hang on more than the "
    "epoch and what torch, numpy and random held as it began, such as a generator of their own made once for all epochs"
)


class LoopPosition:
    """The first step of this epoch, how many of its batches the steps before this one took, the orders that led here,
    and the state of what else of the loop attach() was given. Goes with checkpoints.
    """

    def __init__(
        self, loader: Stateful | None = None, step: Callable[[], int] = lambda: 1, loop: LoopState | None = None
    ) -> None:
        """`step`: the one under way, or the next."""
        self.epoch_began, self.orders = 1, Orders()
        self._loader, self._step, self._loop = loader, step, loop or LoopState()
        self._num: int | None = None  # batches of this epoch handed out; None: one a step, or none
        self._before, self._at = 0, 0  # of these before that step
        self._streams = list[Stream]()  # that have begun in this epoch, in order
        self._left = list[Mapping[str, Any]]()  # states of those that are to go on here
        self._here: Randomness | None = None  # what generators held as this process resumed
        self.is_due: Callable[[int], bool] = lambda step: False  # whether a checkpoint is made before this step
        self.odd = ""  # why batches are known to be no function of the epoch

    def begin_epoch(self, step: int) -> None:
        """At this step, with its first batch."""
        if step == self.epoch_began == 1:
            log.warning("epoch.without_steps", expected="each step within `with run.step()`")
        self.epoch_began, self._at = step, 0
        self._num = None if self._num is None else 0
        self._streams, self._left = [], []

    def resume(self, step: int, epoch: int) -> None:
        """Before this step, where a checkpoint was put back, of which one of old does not say when its epoch began."""
        if epoch and self.epoch_began == 1:
            self.begin_epoch(step)
        self._here = Randomness.now()

    def handed_out(self, make: Make[T]) -> Iterator[T]:
        """All of this epoch but those that were trained on; a step takes as many as it likes, of each stream alike."""
        self._num = num = self._num_before()
        began, stream = self.epoch_began, self._next_stream()
        for batch in stream.batches(make, num, self._due_next):
            if began != self.epoch_began:  # it ended meanwhile, after steps_per_epoch: the next one's count begins
                began, num, stream.num = self.epoch_began, 0, 1
                self._streams.append(stream)
            if stream.has_parted and not self.odd:
                self.odd = OTHER_BATCHES.format(step=self._step())
                log.warning("batches.differ", why=self.odd)
            if self._at != (step := self._step()):
                self._before, self._at = num, step
            self._num = num = num + 1
            yield batch

    def _next_stream(self) -> Stream:
        kept = self._left.pop(0) if self._left else None
        stream = Stream(Randomness.now() if kept is None or self._here is None else self._here, kept)
        self._streams.append(stream)
        return stream

    def _due_next(self) -> int:
        return step if self.is_due(step := self._step()) else 0

    def _num_before(self) -> int:
        """Batches that the steps before this one took."""
        step = self._step()
        if self._num is None:
            return step - self.epoch_began
        return self._before if self._at == step else self._num

    def state_dict(self) -> dict[str, Any]:
        loader = None if self._loader is None else self._loader.state_dict()
        orders = {NUM_ORDERS: self.orders.num, ORDERS: self.orders.digest.hex()}
        num_batches = None if self._num is None else self._num_before()
        return {
            EPOCH_BEGAN: self.epoch_began,
            NUM_BATCHES: num_batches,
            LOADER: loader,
            **orders,
            LOOP: self._loop.state_dict(),
            STREAMS: [*(each.state_dict() for each in self._streams), *self._left],
            ODD: self.odd,
        }

    def load_state_dict(self, state: Any) -> None:
        """Also a loader's alone, as checkpoints had it before, or without the orders or the loop's state."""
        self.orders.num, self.orders.digest = 0, b""
        if isinstance(state, dict) and EPOCH_BEGAN in state:
            self.orders.num = int(state.get(NUM_ORDERS, 0))
            self.orders.digest = bytes.fromhex(state.get(ORDERS, ""))
            self._num, self._at = state.get(NUM_BATCHES), 0
            self._loop.load_state_dict(state.get(LOOP, {}))
            self._left, self.odd = [*state.get(STREAMS, ())], state.get(ODD, "")
            self.epoch_began, state = int(state[EPOCH_BEGAN]), state.get(LOADER)
        if self._loader is not None and state is not None:
            self._loader.load_state_dict(state)
