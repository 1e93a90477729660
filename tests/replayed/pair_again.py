"""A run of several ranks once more from its log, each in a process of its own."""

from __future__ import annotations

from functools import partial

from esper.leyline import contracts as pb
from tests.garden.wrong import require
from tests.replayed.again import Outcome, compared, parting, planned
from tests.replayed.far import Ended
from tests.replayed.pair import PairLife
from tests.replayed.trainee import Process, is_replayed


def replayed(life: PairLife) -> Outcome:
    """Wrong where a rank came to something else, or where log, verify and diff are not as they must be."""
    made = planned(life.town)
    if isinstance(made, Outcome):
        return made
    said, reports = trained(life, made), life.reports()
    outcomes = []
    for plan, ended in zip(made, said, strict=True):
        require(not ended.why, f"{plan.worker}: {ended.why}")
        came = pb.ReplayReport.FromString((life.town.folder / f"report-{plan.rank}.bin").read_bytes())
        number = int(plan.worker.removeprefix("worker-"))  # of a replica that Redis alone remembers, not its rank
        first = life.trainers[number].says
        assert isinstance(first, Ended)
        if life.is_summed_otherwise and came.report.parameter_digest != reports[number].parameter_digest:
            return Outcome(refused="DDP sums otherwise in a process's first step, as docs/replay.md says")
        outcomes.append(compared(life.town, plan, came, reports[number], parting(first.sums, ended.sums)))
    if life.is_group:
        digests = {each.parameter_digest for each in reports}
        require(len(digests) == 1, f"its ranks ended with {len(digests)} models")
    return next((each for each in outcomes if each.refused), outcomes[0])


def trained(life: PairLife, made: list[pb.ReplayPlan]) -> list[Ended]:
    """What each rank says at the end of its replay."""
    processes = list[Process]()
    try:
        for plan in made:
            body = partial(is_replayed, life.trainee(plan.rank), life.town.folder / "meet-again", plan)
            processes.append(Process(body, life.town.folder, [each.line for each in processes]))
        said = [each.hear() for each in processes]
    finally:
        for each in processes:
            each.kill()
    assert all(isinstance(each, Ended) for each in said)
    return [each for each in said if isinstance(each, Ended)]
