"""What is timed: arms that do the same work, one call a sample, or as many as their comparison says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from esper.bench.agreement import Answer


@dataclass(slots=True)
class Ready:
    """An arm that was set up.

    `call` is timed; `before` runs untimed ahead of each sample. `answer` is what the work came to: it is
    asked once after one untimed call and compared with the other arms' before anything is timed. None: this arm does
    other work on purpose, as a physical limit does, and is never asked.
    """

    call: Callable[[], object]
    answer: Callable[[], Answer] | None = None
    before: Callable[[], object] | None = None
    close: Callable[[], object] | None = None
    calls: int = 1
    """To one of the row's, where this arm's alone is too short for the clock: a sample is their mean. `before` runs
    ahead of all of them."""
    device: str = "cpu"
    """"cuda" or "cuda:1": timed by events on that device, which is waited for. Else by the processor's clock."""

    def prepare(self) -> None:
        """Ahead of a call."""
        if self.before is not None:
            self.before()


@dataclass(frozen=True, slots=True)
class Arm:
    """A name and what sets it up. Nothing of torch, Redis or a peer is loaded before `set_up` is called."""

    name: str
    set_up: Callable[[], Ready]
    missing: Callable[[], str] | None = None
    """Why it can't be measured here ("peft is not installed"); an empty string: it can."""
