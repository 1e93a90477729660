"""Sets the arms of a comparison up, sees that they agree, and gives back what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TypeAlias

from esper.bench.agreement import DisagreementError, difference
from esper.bench.arm import Arm, Ready
from esper.bench.device import around, device
from esper.bench.row import Comparison
from esper.bench.timing.blame import ArmFailedError, blaming
from esper.bench.timing.clock import timed

Exit: TypeAlias = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


def missing(row: Comparison) -> dict[str, str]:
    """Why arms of the row can't be measured here, by name."""
    why = {}
    for arm in row.arms:
        if arm.missing is not None:
            with blaming(row.name, arm.name):
                why[arm.name] = arm.missing()
    return {name: words for name, words in why.items() if words}


@contextmanager
def opened(row: Comparison, arms: tuple[Arm, ...]) -> Iterator[dict[str, Ready]]:
    """These arms of the row, set up in their order, with its load running; closed in the opposite order."""
    with ExitStack() as stack:
        ready = {}
        for arm in arms:
            with blaming(row.name, arm.name):
                ready[arm.name] = _set_up(arm, is_placed=row.is_placed)
            if (close := ready[arm.name].close) is not None:
                stack.push(_closing(row.name, arm.name, close))
        if row.load is not None:
            with blaming(row.name, "load"):
                stack.push(_closing(row.name, "load", row.load()))
        yield ready


def _set_up(arm: Arm, *, is_placed: bool) -> Ready:
    with around(is_placed):
        ready = arm.set_up()
    if is_placed:
        ready.device = device()
    return ready


def agree(row: Comparison, ready: Mapping[str, Ready]) -> None:
    """Call each arm once and compare what they come to. Raises DisagreementError, naming where they differ."""
    first = ""
    answers = {}
    for name, arm in ready.items():
        with blaming(row.name, name):
            arm.prepare()
            arm.call()
            if arm.answer is None:
                continue
            answers[name] = arm.answer()
        first = first or name
        if words := difference(answers[first], answers[name], row.tolerance):
            raise DisagreementError(row.name, first, name, words)


def samplers(row: Comparison, ready: Mapping[str, Ready]) -> dict[str, Callable[[], float]]:
    """What takes one sample of each arm, in seconds of all its calls; it fails with the arm's name."""
    return {name: _sampler(row, name, arm) for name, arm in ready.items()}


def _sampler(row: Comparison, name: str, arm: Ready) -> Callable[[], float]:
    with blaming(row.name, name):
        once = timed(arm, row.calls * arm.calls)

    def sample() -> float:
        with blaming(row.name, name):
            return once() / arm.calls

    return sample


def _closing(row: str, name: str, close: Callable[[], object]) -> Exit:
    """Closes it. Where that fails after something else did, what came first is what the row failed of."""

    def exit(kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with blaming(row, name):
                close()
        except ArmFailedError as failed:
            if error is None:
                raise
            error.add_note(str(failed))

    return exit
