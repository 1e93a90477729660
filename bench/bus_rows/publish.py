"""Publishing: build, seal and add, a pipeline at a time and one by one."""

from __future__ import annotations

from functools import partial
from typing import cast

from bus_arms import limit
from bus_rows.session import Arms, Session
from esper.bench.rounds.part import PartError
from report import quantile

MODULES = {"ours": "ours", "bare": "bare", "bare again": "bare"}
SHARE = {"packet": 1, "command": 2}  # a signature each makes a slice of commands last longer


def measure(session: Session) -> None:
    for what, share in SHARE.items():
        pipelined(session, what, session.amounts.num // share)
    for what in SHARE:
        one_by_one(session, what)
    signature(session)


def pipelined(session: Session, what: str, num: int) -> None:
    row = f"publish {what}"
    arms: Arms = {name: partial(rate, session, module, what, num) for name, module in MODULES.items()}
    if limit.is_here():
        size = int(session.ask("ours", "size", what=what))
        arms["redis-benchmark"] = partial(limit.publish, session.url, size, limit.num_of(num))
    else:
        session.report.add_missing(row, "redis-benchmark", "msg/s", limit.MISSING)
    rates = session.in_turns(row, "msg/s", arms)
    session.report.add_rates(
        row, rates, {**dict.fromkeys(rates, num), "redis-benchmark": limit.num_of(num)}, against="bare"
    )
    session.report.aim_ratio(row, "ours", "rate", 0.5, higher=True)


def rate(session: Session, module: str, what: str, num: int) -> float:
    return num / float(session.ask(module, "publish", what=what, num=num))


def one_by_one(session: Session, what: str) -> None:
    row, given = f"one awaited publish, {what}", {"what": what, "num": session.amounts.calls}
    try:
        samples = session.ask("single", "samples", seed=session.order.randrange(2**32), **given)
    except PartError as error:
        session.failed(row, "ours", "us", error.why)
        return
    session.report.add_arms(row, cast(dict[str, list[float]], samples), "us", against="bare")
    session.report.aim_ratio(row, "ours", "p50", 1.3)


def signature(session: Session) -> None:
    """What of a command's seal is its signature."""
    row, num = "one awaited publish, command", session.amounts.calls
    taken = [float(each) for each in session.ask("single", "signing", num=num)]
    session.report.add(row, "Ed25519 alone", "p50", quantile(taken, 0.5), "us", num)
