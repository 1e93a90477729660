"""A run once more from its log: the same parameters, or a refusal that names why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from esper.kasmina.pruning.pruner import PARTED
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.history import logbook
from esper.runtime.history.audit import Finding, audit
from esper.runtime.history.retrace import EARLY, NotReplayableError, plans
from esper.session import Session
from esper.session.replay_link import ReplayLink
from esper.tolaria.teachers.teachers import BY_CHANCE, WITHOUT
from tests.garden import course
from tests.garden.loops import Loop
from tests.garden.wrong import require
from tests.replayed.life import Life
from tests.replayed.script import Kept, Script, join, looped, train
from tests.replayed.tampering import found_out
from tests.replayed.town import Town

REFUSALS = ("and later a checkpoint of it", "a teacher was registered", "were no process group", EARLY, WITHOUT, PARTED)
"""Words of docs/replay.md's refusals that any run may meet."""
REFUSED_SOME = "or this rank refused some as the clock was set"


@dataclass(frozen=True)
class Outcome:
    """Of a replay. `refused`: why there was none."""

    refused: str = ""
    num_orders: int = 0


def replayed(life: Life) -> Outcome:
    """Wrong where it came to something else, or where log, verify and diff are not as they must be."""
    made = planned(life.town)
    if isinstance(made, Outcome):
        return made
    [plan] = made
    folder, keyring = life.town.folder, life.town.keys.file
    report = folder / "report-0.bin"
    link, kept = ReplayLink(plan, report), Kept()

    def joined(script: Script) -> Session:
        assert isinstance(script, Loop)
        return join(life.plan, script, link, folder / "again", keyring, plan.run_id)

    try:
        train(looped(life.plan), link, joined, kept, life.plan)
    except SystemExit as ended:
        require(ended.code == 0, f"it ended with {ended.code}")
    came = pb.ReplayReport.FromString(report.read_bytes())
    return compared(life.town, plan, came, life.reports()[0], parting(life.kept.sums, kept.sums))


def planned(town: Town) -> list[pb.ReplayPlan] | Outcome:
    """Of each rank what it is to do again, from a log that is found sound."""
    path, keyring = town.folder / "run.jsonl", town.keys.of(Role.OBSERVER, lasts=False)
    logbook.write(town.streams.book(town.run_id), path)
    book = logbook.read_file(path)
    public = RoleKeyring(town.run_id, (), keyring.validities, {}, {}, keyring.public_keys)
    if not town.streams.num_lost:
        for keys in (keyring, public, None):
            found = audit(book, keys)
            whose = ", ".join(keys.roles) or "public keys" if keys is not None else "nobody"
            findings = [each for each in found.findings if not on_its_way(each, town)]
            require(not findings, f"its log is not sound by the keys of {whose}: {findings[:3]}")
        found_out(path, keyring, Random(town.plan.seed))
    try:
        return plans(town.run_id, logbook.opened(book, keyring))
    except NotReplayableError as error:
        require(may_be_refused(town, error.why), f"it is refused: {error.why}")
        return Outcome(refused=error.why)


def on_its_way(finding: Finding, town: Town) -> bool:
    """Sealed before the clock was set ahead, or its key retired, and written behind it, as docs/replay.md says."""
    excuses = {"stale": "clock", "unknown_key": "rotate"}
    return finding.stream == "receipts" and excuses.get(finding.kind) in town.plan.troubles.values()


def may_be_refused(town: Town, why: str) -> bool:
    """Where history is lost, where a rank refused a decision as a clock was set, or as docs/replay.md says."""
    is_set = "clock" in town.plan.troubles.values()
    known = town.streams.num_lost > 0 or (is_set and why.endswith(REFUSED_SOME))
    taught = town.plan.taught
    if taught is not None and why == BY_CHANCE:
        return taught.may_fail
    return known or any(words in why for words in REFUSALS)


def compared(town: Town, plan: pb.ReplayPlan, came: pb.ReplayReport, then: pb.WorkerReport, where: str) -> Outcome:
    """What a rank came to beside what it had come to."""
    if came.judged_anew and town.plan.by_the_clock:
        return Outcome(refused="a verdict that the clock had a say in died with a process; `esper replay` warns of it")
    ends = [(each.parameter_digest, each.part_digest, each.steps) for each in (came.report, then)]
    differs = ends[0] != ends[1]
    if differs and came.judged_anew and town.plan.checkpoints:
        return Outcome(refused="whether a checkpoint could be gone back to died with a process; `esper replay` warns")
    if differs:
        name = plan.worker
        require(False, f"{name} came to something else: {where}; {came.report.steps} {list(came.differences)[:3]}")
    require(not came.differences, f"receipts differ: {list(came.differences)[:3]}")
    return Outcome(num_orders=len(plan.orders))


def parting(then: Mapping[int, Mapping[str, int]], now: Mapping[int, Mapping[str, int]]) -> str:
    """The first step after which they differ, and in what."""
    for step in sorted(now.keys() & then.keys()):
        odd = course.otherwise(now[step], then[step])
        if odd:
            return f"after step {step}: {odd[:6]}"
    return "in no step"
