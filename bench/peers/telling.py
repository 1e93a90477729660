"""Loggers of a training step in turns, a process each: their threads are to take no time from one another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

from bus_rows.served import served
from bus_rows.session import Session, joined
from esper.bench.agreement import DisagreementError
from esper.bench.effort import Effort
from esper.bench.figures import Figure, not_measured
from esper.bench.rounds.part import PartError
from esper.bench.row import Comparison
from esper.bench.statistics.summary import AGAIN, figures_of
from peers.turns import PEERS_AMOUNTS, absent, failures

OURS, LIMIT = "esper", "loss.item()"
PACKAGES = {"TensorBoard": "tensorboard", "W&B offline": "wandb"}
STEPS = {"quick": 32, "gate": 64, "full": 128}
MS = 1e3


def telling(name: str, effort: Effort) -> Iterator[Figure]:
    """Microseconds that one step waits until its four metrics are told. Ours is set up twice: two runs, two processes.

    Raises DisagreementError where a logger has not told of the same metrics.
    """
    row = Comparison(name, "peers", (), "us", "4 metrics, 0.07 M parameters", limit=LIMIT)
    missing = {arm: f"{package} is not installed" for arm, package in PACKAGES.items() if not find_spec(package)}
    arms = [arm for arm in (OURS, OURS + AGAIN, *PACKAGES, LIMIT) if arm not in missing]
    with served(effort, PEERS_AMOUNTS) as session:
        try:
            _open(row, session, arms)
            ways = {arm: partial(_steps, session, arm, STEPS[effort.mode]) for arm in arms}
            yield from figures_of(row, joined(session.in_turns(name, "ms", ways)))
            why = {arm: not_measured(words) for arm, words in missing.items()}
            yield from absent(row, {**why, **failures(session)})
        finally:
            _close(session, arms)


def _open(row: Comparison, session: Session, arms: list[str]) -> None:
    told = {arm: list(session.ask(f"peers.logged:{arm}", "opened", which=arm.removesuffix(AGAIN))) for arm in arms}
    for arm, names in told.items():
        if arm != LIMIT and names != told[OURS]:
            raise DisagreementError(row.name, OURS, arm, f"it told of {names}, expected {told[OURS]}")


def _steps(session: Session, arm: str, num: int) -> list[float]:
    return [float(each) / MS for each in session.ask(f"peers.logged:{arm}", "steps", num=num)]


def _close(session: Session, arms: list[str]) -> None:
    """Each says farewell to what it has started; one that is dead already can't."""
    for arm in arms:
        try:
            session.ask(f"peers.logged:{arm}", "close")
        except PartError:
            continue
