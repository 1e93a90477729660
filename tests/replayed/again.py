"""A run once more from its log: the same parameters, or a refusal that names why."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime import logbook
from esper.runtime.audit import audit
from esper.runtime.retrace import NotReplayableError, plans
from esper.session.replay_link import ReplayLink
from tests.garden import course
from tests.garden.wrong import require
from tests.replayed.life import Life
from tests.replayed.script import Kept, join, train
from tests.replayed.tampering import found_out


@dataclass(frozen=True)
class Outcome:
    """Of a replay. `refused`: why there was none."""

    refused: str = ""
    num_orders: int = 0


def replayed(life: Life) -> Outcome:
    """Wrong where it came to something else, or where log, verify and diff are not as they must be."""
    path = life.folder / "run.jsonl"
    keyring = life.master.derive(life.run_id, [Role.OBSERVER])
    logbook.write(life.streams.book(life.run_id), path)
    book = logbook.read_file(path)
    found = audit(book, keyring)
    if not life.streams.num_lost:
        require(not found.findings, f"its log is not sound: {found.findings[:3]}")
        found_out(path, keyring, Random(life.plan.seed))
    reads = logbook.opened(book, keyring)
    try:
        [plan] = plans(life.run_id, reads)
    except NotReplayableError as error:
        require(may_be_refused(life, error.why), f"it is refused: {error.why}")
        return Outcome(refused=error.why)
    return _trained(life, plan)


def may_be_refused(life: Life, why: str) -> bool:
    """Where history is lost, where a clock that is set makes what was said of the future, or as docs/replay.md says."""
    known = life.streams.num_lost > 0 or "clock" in life.plan.troubles.values()
    return known or "and later a checkpoint of it" in why or "a teacher was registered" in why


def _trained(life: Life, plan: pb.ReplayPlan) -> Outcome:
    report = life.folder / "report-0.bin"
    link, kept = ReplayLink(plan, report), Kept()
    try:
        train(
            life.plan,
            link,
            lambda loop: join(life.plan, loop, link, life.folder / "again", life.keyring, life.run_id),
            kept,
            lambda: False,
        )
    except SystemExit as ended:
        require(ended.code == 0, f"it ended with {ended.code}")
    came = pb.ReplayReport.FromString(report.read_bytes())
    then = _ended(life)
    if came.judged_anew and life.plan.by_the_clock:
        return Outcome(refused="a verdict that the clock had a say in died with a process; `esper replay` warns of it")
    if came.report.parameter_digest != then.parameter_digest or came.report.steps != then.steps:
        require(False, f"it came to something else: {_where(life.kept, kept)}; {list(came.differences)[:3]}")
    require(not came.differences, f"receipts differ: {list(came.differences)[:3]}")
    return Outcome(num_orders=len(plan.orders))


def _ended(life: Life) -> pb.WorkerReport:
    assert life.session is not None
    return life.session.close()


def _where(then: Kept, now: Kept) -> str:
    """The first step after which they differ, and in what."""
    for step in sorted(now.sums):
        odd = course.otherwise(now.sums[step], then.sums.get(step, {}))
        if odd:
            return f"after step {step}: {odd[:6]}"
    return "in no step"
