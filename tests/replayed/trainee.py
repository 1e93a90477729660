"""The process of one of several trainers, and who hears it."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from esper.leyline import contracts as pb
from esper.session.replay_link import ReplayLink
from tests.garden.wrong import Wrong
from tests.replayed.far import Away, Call, Ended, FarLink, Told
from tests.replayed.pair_script import PATIENCE_S, Saved, Trainee
from tests.replayed.rank import ENDS
from tests.replayed.script import Kept

Says = Call | Away | Ended | Told


class Process:
    """Runs `body(line)`; what it says is heard in its order."""

    def __init__(self, body: Callable[[Connection], Ended], folder: Path, inherited: Sequence[Connection]) -> None:
        self.line, its = Pipe()
        self._stacks = folder / f"stacks-{self.line.fileno()}"
        given = body, its, self._stacks, [self.line, *inherited]
        self._process: Any = get_context("fork").Process(target=_run, args=given, daemon=True)
        self._process.start()
        its.close()

    def hear(self) -> Says:
        """Wrong where it is silent for long."""
        if not self.line.poll(PATIENCE_S):
            raise Wrong(f"it hangs in {self._stack()}")
        try:
            said: Says = self.line.recv()
        except EOFError:
            raise Wrong("it died") from None
        return said

    def _stack(self) -> str:
        os.kill(self._process.pid, signal.SIGUSR1)
        self._process.join(1.0)
        frames = re.findall(r'File ".*/([^/"]+)", line (\d+) in (\w+)', self._stacks.read_text())
        return " < ".join(f"{name}:{line} {function}" for name, line, function in frames[:12])

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.line.close()


def _run(body: Callable[[Connection], Ended], line: Connection, stacks: Path, inherited: Sequence[Connection]) -> None:
    for each in inherited:
        each.close()
    file = open(stacks, "w")  # noqa: SIM115 - open while the process lives
    faulthandler.register(signal.SIGUSR1, file, all_threads=False)
    try:
        with capture_logs(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of options of DDP
            said = body(line)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        where = traceback.extract_tb(error.__traceback__)[-1]
        is_an_end = "" if isinstance(error, ENDS) else "!"
        what = f"{type(error).__name__} {str(error)[:400]} ({where.filename.split('/')[-1]}:{where.lineno})"
        said = Ended(is_an_end + what)
    with suppress(OSError):
        line.send(said)
    os._exit(0)  # destructors of a group wait for its threads


def lives(trainee: Trainee, meet: Path, line: Connection) -> Ended:
    """One life of a trainer."""
    trainee = replace(trainee, goes_away=lambda: line.send(Away()))
    trainee.meet(meet)
    kept = Kept(Saved(trainee.folder / f"own-{trainee.number}"))
    run = trainee.train(FarLink(line), trainee.folder / "checkpoints", kept)
    return Ended(report=run.close(), sums=kept.sums)


def is_replayed(trainee: Trainee, meet: Path, plan: pb.ReplayPlan, line: Connection) -> Ended:
    """The same from a plan."""
    trainee.meet(meet)
    kept = Kept()
    link = ReplayLink(plan, trainee.folder / f"report-{plan.rank}.bin")
    try:
        trainee.train(link, trainee.folder / "again", kept)
    except SystemExit as ended:
        return Ended("" if ended.code == 0 else f"!it ended with {ended.code}", sums=kept.sums)
    return Ended(sums=kept.sums)
