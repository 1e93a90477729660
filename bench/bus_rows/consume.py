"""Reading: sealed messages per second of one process, beside the bare loop and the server's limit."""

from __future__ import annotations

from functools import partial

from bus_arms import limit
from bus_rows.session import Arms, Session

TARGETS = {"consume packet": 100_000.0, "consume command": 100_000.0, "consume command, two receipts": 25_000.0}
MODULES = {"ours": "ours", "bare": "bare", "bare again": "bare"}


def measure(session: Session) -> None:
    for what in ("packet", "command"):
        one_row(session, f"consume {what}", what, receipts=False)
    one_row(session, "consume command, two receipts", "command", receipts=True)


def one_row(session: Session, row: str, what: str, *, receipts: bool) -> None:
    num = session.amounts.num
    given: dict[str, object] = {"receipts": True} if receipts else {}
    arms: Arms = {name: partial(rate, session, module, what, num, **given) for name, module in MODULES.items()}
    if not receipts:
        size = int(session.ask("ours", "size", what=what))
        session.report.add(row, "sealed", "count", size, "bytes", 1)
        arms["ours, shared group"] = partial(rate, session, "ours", what, num, reclaim_after_ms=5_000)
        arms |= redis_benchmark(session, row, size)
    rates = session.in_turns(row, "msg/s", arms)
    nums = {**dict.fromkeys(rates, num), "redis-benchmark": limit.num_of(num)}
    session.report.add_rates(row, rates, nums, against="bare")
    session.report.aim(row, "ours", "rate", TARGETS[row], higher=True)
    if not receipts:
        session.report.aim_ratio(row, "ours", "rate", 0.5, higher=True)


def rate(session: Session, module: str, what: str, num: int, **given: object) -> float:
    return num / float(session.ask(module, "consume", what=what, num=num, **given))


def redis_benchmark(session: Session, row: str, size: int) -> Arms:
    if limit.is_here():
        return {"redis-benchmark": partial(limit.consume, session.url, size, limit.num_of(session.amounts.num))}
    session.report.add_missing(row, "redis-benchmark", "msg/s", limit.MISSING)
    return {}
