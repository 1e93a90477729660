"""`esper replay`: a finished run once more, from its log, and whether it comes to the same parameters."""

from __future__ import annotations

import asyncio
import json as notation
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from esper.cli.interrupting import interruptible
from esper.cli.options import RUNS, AsObject, Keyring, LoggedRun, RunsDir, SameRun, logged
from esper.cli.output.verdict import ending_with
from esper.cli.running.rerun import ReplayFailedError, train
from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.terminal_text import printable
from esper.runtime.history import logbook
from esper.runtime.history.logbook import Read
from esper.runtime.history.releases import UNTOLD, other_release
from esper.runtime.history.retrace import Life, NotReplayableError, lives, plans
from esper.view.wording import counted

DIFFERS = 1


@dataclass
class Result:
    """What was found, and what the run had come to."""

    run_id: str
    digest_then: str
    steps_then: int
    parts_then: list[str] = field(default_factory=list)  # of each rank, its own; empty where nothing was split
    digests: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Every rank holds what the run held."""
        return set(self.digests) == {self.digest_then} and self.parts == self.parts_then

    def row(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "equal": self.equal,
            "parameter_digest": self.digest_then,
            "replayed": self.digests,
            "part_digests": self.parts_then,
            "parts_replayed": self.parts,
            "steps": self.steps_then,
            "steps_replayed": self.steps,
            "seconds": round(self.seconds, 3),
            "warnings": self.warnings,
            "differences": self.differences,
        }


def replay(
    named: LoggedRun = None,
    run: SameRun = None,
    script: Annotated[
        str, typer.Option(help="What to start instead of what the run was: arguments of the interpreter, as one text.")
    ] = "",
    runs_dir: RunsDir = RUNS,
    keyring: Keyring = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether the run can be replayed.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1.0, help="Give up after so many seconds.")] = 3600.0,
    json: AsObject = False,
) -> None:
    """Run a finished run again on this machine, decisions taken from its log, and compare the parameters.

    Status 0: the same digest on every rank; 1: another one; 2: it can't be replayed, and why.
    """
    book, keys = asyncio.run(logbook.find(logged(named, run), runs_dir, keyring))
    if keys is None:
        raise SettingError("--keyring", "", "a keyring of the run: its log is opened as it was then")
    if book.flaws:
        raise NotReplayableError(f"{book.flaws[0]}; `esper verify` says more")
    run_id = book.run_id or keys.run_id
    reads = logbook.opened(book, keys)
    try:
        made = plans(run_id, reads)
    except NotReplayableError as error:
        if book.live_at:
            raise NotReplayableError(
                f"{run_id} still goes on, and {error.why}; `esper down {run_id}` ends it"
            ) from None
        raise
    arguments = script.split() or list(lives(reads)[0][-1].began.script)
    if dry_run:
        say_possible(made, other_release(reads), json)
        return
    result = _run_again(made, arguments, reads, timeout_s)
    with ending_with(0 if result.equal else DIFFERS):
        typer.echo(notation.dumps(result.row()) if json else told(result))


def say_possible(made: Sequence[pb.ReplayPlan], release: str, as_json: bool) -> None:
    """What a replay would do, for --dry-run; `release`: which other code has trained the run, if any."""
    run, steps, rounds = made[0].run_id, made[0].last_step, len(made[0].orders)
    if as_json:
        row = {"run": run, "replayable": True, "ranks": len(made), "steps": steps, "rounds": rounds, "release": release}
        typer.echo(notation.dumps(row))
        return
    if release:
        typer.echo(printable(f"warning: {release}"))
    typer.echo(f"run {run} can be replayed: {counted(len(made), 'rank')}, {steps} steps, {rounds} rounds")


def told(result: Result) -> str:
    """For a person."""
    lines = [f"warning: {each}" for each in result.warnings] + [f"differs: {each}" for each in result.differences]
    ranks = f"{counted(len(result.digests), 'rank')}, {max(result.steps, default=0)} steps in {result.seconds:.1f} s"
    met, then = ", ".join(sorted({each[:16] for each in result.digests})), result.digest_then[:16]
    held = f"parameters {then} again" if met == then else f"parameters {met}, not {then}"
    if any(result.parts_then):
        held += ", the ranks' parts again" if result.parts == result.parts_then else ", other parts"
    word = "replayed" if result.equal else "differs"
    return "\n".join(map(printable, [*lines, f"run {result.run_id} {word}: {ranks}, {held}"]))


def _run_again(
    made: Sequence[pb.ReplayPlan], arguments: Sequence[str], reads: dict[str, list[Read]], timeout_s: float
) -> Result:
    then = lives(reads)
    final = then[0][-1].ended
    assert final is not None  # else there is no plan
    result = Result(made[0].run_id, final.report.parameter_digest.hex(), made[0].last_step)
    began = time.monotonic()
    with interruptible(), tempfile.TemporaryDirectory(prefix="esper-replay-") as temporary:
        folder = Path(temporary)
        MasterKeyring.new(time.time_ns()).derive(result.run_id, [Role.WORKER]).save(folder / "keyring.json")
        for plan in made:
            (folder / f"plan-{plan.rank}.bin").write_bytes(plan.SerializeToString())
        train(folder, made, arguments, began + timeout_s)
        for plan in made:
            path = folder / f"report-{plan.rank}.bin"
            if not path.is_file():
                raise ReplayFailedError(f"{plan.worker} ended without a report: its script never called close()")
            _note(result, plan, pb.ReplayReport.FromString(path.read_bytes()), then[plan.rank])
    result.seconds = time.monotonic() - began
    return result


def _surroundings(began: pb.RunBegan) -> dict[str, object]:
    """What else decides what a process comes to, by name; a log of before 2026-11-23 tells of less."""
    names = ("esper_version", "torch_version", "python_version", "machine", "device", "num_threads")
    return {name: getattr(began, name) for name in names} | dict(began.numerics)


def _weights(began: pb.RunBegan) -> tuple[bytes, bytes]:
    """What tells whether a rank began with the same parameters."""
    return began.parameter_digest, began.part_digest


def _note(result: Result, plan: pb.ReplayPlan, report: pb.ReplayReport, lived: Sequence[Life]) -> None:
    then, ended = lived[-1].began, lived[-1].ended or pb.RunEnded()
    result.digests.append(report.report.parameter_digest.hex())
    result.parts.append(report.report.part_digest.hex())
    result.parts_then.append(ended.report.part_digest.hex())
    result.steps.append(report.report.steps)
    if report.report.part_digest != ended.report.part_digest:
        result.differences.append(f"{plan.worker} holds other parts of what fully_shard has split")
    if report.report.steps != plan.last_step:
        result.differences.append(f"{plan.worker} ended after {report.report.steps} steps, then {plan.last_step}")
    if not then.resumed and _weights(report.began) != _weights(then):
        result.differences.append(f"{plan.worker} began with other parameters: is the script the same, and seeded?")
    result.differences += [f"{plan.worker}: {each}" for each in report.differences]
    met = _surroundings(report.began)
    for life in lived:  # it may have been gone on with elsewhere
        for name, expected in _surroundings(life.began).items():
            warning = f"{name} is {met.get(name)}, then {expected or UNTOLD}"
            if met.get(name) != expected and warning not in result.warnings:
                result.warnings.append(warning)
    if (
        then.device != "cpu"
        and (warning := f"equal bits are promised on CPU; this is {then.device}") not in result.warnings
    ):
        result.warnings.append(warning)
    anew = f"{report.judged_anew} gates or rollbacks of which no receipt tells were judged anew"
    if report.judged_anew and anew not in result.warnings:
        result.warnings.append(anew)
