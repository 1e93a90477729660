"""Every order in which a rank's logs may be met, with whatever befalls it in between: what comes of each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random

from structlog.testing import capture_logs

from esper.errors import EvictedError, TrainingError
from tests.simulation.arrivals import ME, Life, Outcome, ended, interleavings
from tests.simulation.told import FLAWS, STREAMS, Script, abort, commit, entry_id, leader, proposal

OTHERS = ("worker-1",)
SCRIPTS: dict[str, Script] = {
    name: Script(decisions)
    for name, decisions in {
        "a round": (proposal(1), commit(1, "c1")),
        "two logs": (proposal(1), commit(1, "c1", "o1"), proposal(2), commit(2, "c2")),
        "an abort": (proposal(1), abort(1), proposal(2), commit(2, "c1")),
        "said twice": (proposal(1), commit(1, "c1"), abort(1), commit(1, "c1"), proposal(2), commit(2, "c2")),
        "two leaders": (
            *(proposal(1), commit(1, "c1"), leader(2), commit(2, "c2")),
            *(proposal(2, token=2), commit(2, "o1", token=2)),
        ),
        "aborted by the next": (proposal(1), leader(2), abort(1, token=2), commit(1, "c1"), commit(2, "c1", token=2)),
        "evicted": (proposal(1), abort(1, evicts=True), proposal(2, generation=2, roster=OTHERS)),
        "left out": (proposal(1, roster=OTHERS), commit(1, "c1", step=3), proposal(2), commit(2, "o1")),
        "an older roster": (
            *(proposal(1), abort(1), proposal(2, generation=2)),
            *(commit(1, "c1"), commit(2, "c1", generation=2)),
        ),
    }.items()
}
ANEW = ("anew", "resumed")
TURNS = (("commands", "optimizer", "decisions"), ("decisions", "optimizer", "commands"))
PACES = (0, 4)
"""Steps between two entries."""


Flaws = tuple[tuple[str, str], ...]


@cache
def script_of(name: str, flaws: Flaws) -> Script:
    """Sealed once for all its cases."""
    return Script(SCRIPTS[name].decisions, dict(flaws))


@dataclass(frozen=True)
class Case:
    """One order of arrival, and what befalls the rank before its entry number `at`, if anything does.

    "unsettled": the runtime dies before that entry is settled. "destroyed": its groups are gone, and made anew. A
    trainer that begins anew, or resumes, finds `began` decisions; its runtime dies once more before entry number
    `again`.
    """

    script: str
    flaws: Flaws
    order: tuple[str, ...]
    turn: int
    pace: int
    at: int = -1
    what: str = ""  # killed, unsettled, destroyed, anew, resumed
    began: int = 0
    again: int = -1


def cases(name: str, *, flawed: bool) -> Iterator[Case]:
    """All of one script. `flawed`: in each an entry is refused here, or is not there; else a trainer may begin anew."""
    script = SCRIPTS[name]
    all_flaws: list[Flaws] = [((entry, flaw),) for entry in script.names for flaw in FLAWS] if flawed else [()]
    for flaws in all_flaws:
        counts = {log: len(rows) for log, rows in script_of(name, flaws).logs().entries.items()}
        for order in interleavings(counts):
            for turn in range(len(TURNS)):
                for pace in PACES:
                    yield from _befallen(Case(name, flaws, order, turn, pace), len(script.decisions))


def drawn(name: str, dice: Random) -> Case:
    """One of them."""
    entries = SCRIPTS[name].names
    flaws: Flaws = ((dice.choice(entries), dice.choice(FLAWS)),) if entries and dice.random() < 0.5 else ()
    logs = script_of(name, flaws).logs().entries
    order = [log for log, rows in logs.items() for _ in rows]
    dice.shuffle(order)
    quiet = Case(name, flaws, tuple(order), dice.randrange(len(TURNS)), dice.choice(PACES))
    return dice.choice(list(_befallen(quiet, len(SCRIPTS[name].decisions))))


def _befallen(quiet: Case, num_decisions: int) -> Iterator[Case]:
    told = quiet.script, quiet.flaws, quiet.order, quiet.turn, quiet.pace
    yield quiet
    for at in range(len(quiet.order) + 1):
        yield Case(*told, at, "killed")
        yield Case(*told, at, "unsettled")
        yield Case(*told, at, "destroyed")
        num_read = quiet.order[:at].count("decisions")
        for began in () if quiet.flaws else range(num_read, num_decisions + 1):
            for what in ANEW:
                yield from (Case(*told, at, what, began, again) for again in (-1, *range(at + 1, len(quiet.order) + 1)))


def outcome(case: Case) -> tuple[Outcome, str]:
    """What is carried out, and the error that ends it. AssertionError: it waits for ever, or leaves what is wrong."""
    life = Life(script_of(case.script, case.flaws).logs())
    life.begin()
    error = ""
    for at, log in enumerate((*case.order, "")):
        if at == case.at and case.what in ANEW:  # whatever has ended the one before it
            life, error = _begun_anew(life, case), ""
        error = error or _goes_on(life, case, at, log)
    error = error or ended(life, TURNS[case.turn])
    if not error:
        check_told(life, script_of(case.script, case.flaws), again=case.what == "destroyed")
        check_settled(life, script_of(case.script, case.flaws))
        if case.what in ANEW:
            check_owed(life, case)
        else:
            check_answered(life, script_of(case.script, case.flaws), again=case.what == "destroyed")
    return tuple(life.carried_out), error


def check_told(life: Life, script: Script, *, again: bool) -> None:
    """No decision overtakes another. `again`: what is open may be told twice, as it is read twice."""
    in_order = iter([(said.kind, said.number) for said in script.decisions])
    told = dict.fromkeys(life.told) if again else life.told
    assert all(each in in_order for each in told), f"told {life.told}"


def check_settled(life: Life, script: Script) -> None:
    """What is over is acknowledged, and what is not is pending for the next runtime."""
    decided = max((said.number for said in script.decisions if said.kind in ("commit", "abort")), default=0)
    told = dict(zip(life.logs.entries["decisions"], script.decisions, strict=True))
    open_ = {at for (at, _), said in told.items() if said.kind == "proposal" and said.number > decided}
    assert set(life.logs.pending["decisions"]) <= open_, f"pending: {list(life.logs.pending['decisions'])}"


def check_answered(life: Life, script: Script, *, again: bool) -> None:
    """Of what was carried out each command has its receipt, once, and is acknowledged with it.

    But for rounds in which this rank was not asked. What a trainer resumes with is acknowledged with the next commit,
    and so is what is read `again`.
    """
    done = {(STREAMS[name[0]], entry_id(name)) for _, _, names in life.carried_out for name in names}
    left = [(log, at) for log, ids in life.logs.pending.items() for at in ids if (log, at) in done]
    assert again or not left, f"pending: {left}"
    unasked = {said.number for said in script.decisions if said.kind == "proposal" and said.roster == OTHERS}
    due = Counter(name for number, _, names in life.carried_out if number not in unasked for name in names)
    answered = Counter(receipt.command_id for receipt in life.logs.receipts)
    assert answered == due, f"answered {answered}, carried out {due}"


def check_owed(life: Life, case: Case) -> None:
    """Of a trainer that began in another's place: what either carried out is answered, and what the first voted on.

    Whoever was told of a proposal may have voted on it: its commit is owed an answer, though that one has ended. Others
    may be answered too, as a round is not decided without its ranks. No command is answered twice, but where its commit
    is said twice and the runtime that answered the first has died.
    """
    script = script_of(case.script, case.flaws)
    asked = {said.number for said in script.decisions if said.kind == "proposal" and ME in said.roster}
    read = script.decisions[: case.order[: case.at].count("decisions")]
    voted = {said.number for said in read if said.kind == "proposal"}
    owed = asked & (voted | {number for number, _, _ in life.carried_out})
    may_be = script.commits() if case.again < 0 else [said for said in script.decisions if said.kind == "commit"]
    due = Counter(name for said in script.commits() if said.number in owed for name in said.names)
    most = Counter(name for said in may_be for name in said.names)
    answered = Counter(receipt.command_id for receipt in life.logs.receipts)
    assert due <= answered <= most, f"answered {answered}, owed {due}, and at most {most}"


def _goes_on(life: Life, case: Case, at: int, log: str) -> str:
    """Over one entry; the error that ends it there."""
    try:
        if at == case.at and case.what == "destroyed":
            life.lose_groups()
        if at == case.again or (at == case.at and case.what == "killed"):
            life.start_runtime()
        if log and life.has_more(log):
            life.read(log, dies=at == case.at and case.what == "unsettled")
        life.train(case.pace)
    except (TrainingError, EvictedError) as told:
        return type(told).__name__
    return ""


def _begun_anew(life: Life, case: Case) -> Life:
    anew = Life(life.logs, past=life.logs.entries["decisions"][case.began - 1][0] if case.began else "")
    anew.resume(life.kept) if case.what == "resumed" else anew.begin()
    return anew


def parts(case: Case) -> str:
    """How it came otherwise than it was to; empty: it did not."""
    try:
        met, error = outcome(case)
    except AssertionError as waits:
        return str(waits)
    due, due_error = script_of(case.script, case.flaws).expected(case.began, resumed=case.what == "resumed")
    if case.script == "left out":  # a rank that was not asked may come to it later
        met, due = _without_steps(met), _without_steps(due)
    alike = met == due[: len(met)] if error else met == due  # an error may come before what was decided earlier is due
    return "" if alike and error == due_error else f"{met} {error}, and not {due} {due_error}"


def _without_steps(what: Outcome) -> Outcome:
    return tuple((number, 0, names) for number, _, names in what)


def main(every: int) -> int:
    """Each case, or every so many-th one; those that part are told, with their number."""
    num, found = Counter[str](), 0
    for name in SCRIPTS:
        for flawed in (False, True):
            for case in islice(cases(name, flawed=flawed), 0, None, every):
                num[name] += 1
                with capture_logs():
                    how = parts(case)
                if how:
                    found += 1
                    print(case, how, sep="\n  ")
    print(f"{found} of {sum(num.values())} part: {dict(num)}")
    return found


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)))
