"""Sets the arms of a comparison up, sees that they agree, and gives back what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from esper.bench.agreement import DisagreementError, difference
from esper.bench.arm import Arm, Ready
from esper.bench.blame import blaming
from esper.bench.clock import timed
from esper.bench.row import Comparison


def missing(arms: tuple[Arm, ...]) -> dict[str, str]:
    """Why arms can't be measured here, by name."""
    why = {arm.name: arm.missing() for arm in arms if arm.missing is not None}
    return {name: words for name, words in why.items() if words}


@contextmanager
def opened(row: Comparison, arms: tuple[Arm, ...]) -> Iterator[dict[str, Ready]]:
    """These arms of the row, set up in their order, with its load running; closed in the opposite order."""
    with ExitStack() as stack:
        ready = {}
        for arm in arms:
            with blaming(row.name, arm.name):
                ready[arm.name] = arm.set_up()
            if (close := ready[arm.name].close) is not None:
                stack.callback(_blamed, row.name, arm.name, close)
        if row.load is not None:
            with blaming(row.name, "load"):
                stack.callback(_blamed, row.name, "load", row.load())
        yield ready


def agree(row: Comparison, ready: Mapping[str, Ready]) -> None:
    """Call each arm once and compare what they come to. Raises DisagreementError, naming where they differ."""
    first = ""
    answers = {}
    for name, arm in ready.items():
        with blaming(row.name, name):
            _call(arm)
            if arm.answer is None:
                continue
            answers[name] = arm.answer()
        first = first or name
        if words := difference(answers[first], answers[name], row.tolerance):
            raise DisagreementError(row.name, first, name, words)


def blamed_calls(row: str, ready: Mapping[str, Ready]) -> dict[str, Callable[[], float]]:
    """Each arm as one timed call, which fails with the arm's name."""
    return {name: _blamed_call(row, name, arm) for name, arm in ready.items()}


def _blamed_call(row: str, name: str, arm: Ready) -> Callable[[], float]:
    with blaming(row, name):
        once = timed(arm)

    def call() -> float:
        with blaming(row, name):
            return once()

    return call


def _call(arm: Ready) -> None:
    if arm.before is not None:
        arm.before()
    arm.call()


def _blamed(row: str, name: str, what: Callable[[], object]) -> None:
    with blaming(row, name):
        what()
