"""One step of a training loop, and how little one of them does in which nothing is due."""

from __future__ import annotations

from numbers import Real
from time import monotonic
from types import TracebackType
from typing import Protocol

import torch

from esper.errors import SettingError
from esper.kasmina.executor import Executor
from esper.session.exchange import Doorbell
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.rows.rows import Rows


class Stepped(Protocol):
    """What a step is a step of."""

    executor: Executor
    optimizers: Optimizers

    def begin_step(self) -> None: ...
    def end_step(self, loss: torch.Tensor | float | None, step_ms: float) -> None: ...
    def look_around(self, now: float) -> None: ...
    def note_examples(self, num_examples: int) -> None: ...


class Step:
    """One optimizer step with all its micro-batches. Commands take effect on entry.

    Of most steps nothing is asked, and each thing that is looked at lies cold behind the model: so all that such a step
    looks at is here. Who has something to do lowers `due` or `look_from`.
    """

    __slots__ = (
        "_began",
        "_loss",
        "_optimizer",
        "_plain",
        "_session",
        "doorbell",
        "due",
        "is_plain",
        "look_at",
        "look_from",
        "losses",
        "number",
    )

    def __init__(self, session: Stepped, optimizer: torch.optim.Optimizer, rows: Rows, doorbell: Doorbell) -> None:
        """`doorbell[0]` is 0 where nothing can have come from the runtime."""
        self._session, self._optimizer, self._plain, self.doorbell = session, optimizer, rows.plain, doorbell
        self.losses: list[float] = []  # of plain steps, which nobody has been told
        self._loss: torch.Tensor | float | None = None
        self._began = 0.0
        self.number = 1  # of this step; between two steps, of the next one
        self.due = 0.0  # the step before which there is something to do, and before each later one
        self.is_plain = False  # nothing but the loss, the rate and the time is to be kept of this step
        self.look_from, self.look_at = 0, 0.0  # what is done after this step, or from this monotonic second on

    def wake(self) -> None:
        """There may be something to do before the next step."""
        self.due = 0.0

    def __enter__(self) -> Step:
        if self.number >= self.due or self.doorbell[0]:
            self._session.begin_step()
        self._loss = None
        self._began = monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self._session.optimizers.give_back()
            self._session.executor.end_step()
            return
        ended, loss, plain = monotonic(), self._loss, self._plain
        if not self.is_plain or type(loss) is not float:
            self._session.end_step(loss, (ended - self._began) * 1e3)
            return
        rate = self._optimizer.param_groups[0]["lr"]
        plain.values += *plain.noted, loss, rate, (ended - self._began) * 1e3
        self.number = plain.next_step = self.number + 1  # first: the row is there once its time is, also for Ctrl-C
        plain.ended_s.append(ended)
        self.losses.append(loss)
        if self.number >= self.look_from or ended >= self.look_at:
            self._session.look_around(ended)

    def loss(self, loss: torch.Tensor | float, *, examples: int = 0) -> None:
        """Note the step's loss, a number or a tensor of one element.

        One on a device is read at the next flush: nothing synchronises here.
        `examples` says how many of them this rank has trained on in this step, for whoever watches its speed.
        """
        # On the host's processor to read it is to wait for nothing, and a number costs less to keep than a tensor.
        if type(loss) is torch.Tensor and loss.is_cpu:
            self._loss = loss.item()
        elif isinstance(loss, torch.Tensor):
            self._loss = loss.detach().reshape(())
        else:
            self._loss = _number(loss)
        if examples:
            self._session.note_examples(examples)


def _number(loss: object) -> float:
    if not isinstance(loss, Real):
        raise SettingError("loss", f"a {type(loss).__name__}", "a tensor of one element, or a number")
    return float(loss)
