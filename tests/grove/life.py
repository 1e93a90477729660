"""One life on several ranks: their coordinator draws what they do, and holds what they say against one another."""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import signal
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import torch.distributed as dist
from structlog.testing import capture_logs

from esper.leyline import contracts as pb
from tests.garden.hosts import KINDS
from tests.garden.joined import keyring_at
from tests.garden.life import fossilized
from tests.garden.odd import HARMFUL
from tests.garden.orders import Orders, prunable
from tests.garden.plan import Act
from tests.garden.wide import Wide
from tests.garden.wide_orders import WideOrders
from tests.garden.wrong import Wrong, require
from tests.grove.gradients import compare
from tests.grove.plan import PRUNES_FROM, Plan, Turn
from tests.grove.rank import Said, otherwise, serve
from tests.grove.taught import registers

FOSSILIZE = pb.SeedOperation.SEED_OP_FOSSILIZE
PATIENCE_S = float(os.environ.get("GROVE_PATIENCE_S", "45"))
"""Without a word a rank hangs: a step of these takes milliseconds."""
AFTERWARDS_S = 2.0  # until the other rank of one that failed says why it has, too


def run(rank: int, plan: Plan, folder: Path, line: Connection, inherited: Sequence[Connection]) -> None:
    """A rank's process; what goes wrong in it is said. It ends with the one that draws its turns."""
    for each in inherited:
        each.close()
    stacks = open(folder / f"stacks-{rank}", "w")  # noqa: SIM115 - open while the process lives
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    try:
        with capture_logs(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of options of DDP
            logging.disable()  # what a compiler says of what it can't compile
            meet = f"file://{folder}/meet"
            patience = timedelta(seconds=4 * PATIENCE_S)
            dist.init_process_group("gloo", meet, rank=rank, world_size=plan.more.world_size, timeout=patience)
            serve(plan, rank, folder, line)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} {str(error)[:400]} ({where.filename.split('/')[-1]}:{where.lineno})"
        with suppress(OSError):
            line.send(what)
    finally:
        os._exit(0)  # destructors of a group wait for its threads


def heard(line: Connection) -> Said | str:
    try:
        said: Said | str = line.recv()
    except EOFError:
        return "it died"
    return said


class Ranks:
    """Their processes."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.folder, self._lines, self._processes = folder, list[Connection](), list[Any]()
        for rank in range(plan.more.world_size):
            mine, its = Pipe()
            self._lines.append(mine)
            given = rank, plan, folder, its, [*self._lines]
            process = get_context("fork").Process(target=run, args=given, daemon=True)
            process.start()
            its.close()
            self._processes.append(process)

    def tell(self, turn: Turn) -> None:
        for line in self._lines:
            line.send(turn)

    def hear(self) -> list[Said]:
        """From each; Wrong with what they say instead, and with the stacks of those that hang."""
        said: dict[int, Said | str] = {}
        while len(said) < len(self._lines):
            missing = [rank for rank in range(len(self._lines)) if rank not in said]
            failed = [f"rank {rank}: {each}" for rank, each in said.items() if isinstance(each, str)]
            ready = wait([self._lines[rank] for rank in missing], AFTERWARDS_S if failed else PATIENCE_S)
            if not ready:
                raise Wrong("; ".join(failed or [f"rank {rank} hangs in {self._stack(rank)}" for rank in missing]))
            said |= {rank: heard(self._lines[rank]) for rank in missing if self._lines[rank] in ready}
        if failed := [f"rank {rank}: {each}" for rank, each in sorted(said.items()) if isinstance(each, str)]:
            raise Wrong("; ".join(failed))
        return [each for _, each in sorted(said.items()) if isinstance(each, Said)]

    def _stack(self, rank: int) -> str:
        os.kill(self._processes[rank].pid, signal.SIGUSR1)
        self._processes[rank].join(1.0)
        text = (self.folder / f"stacks-{rank}").read_text()
        frames = re.findall(r'File ".*/([^/"]+)", line (\d+) in (\w+)', text)
        return " < ".join(f"{name}:{line} {function}" for name, line, function in frames[:12])

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for line in self._lines:
            line.close()


class Life:
    """Draws a turn for all ranks, and looks at what they say of it."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.turns = plan, list[Turn]()
        if plan.checkpoints:
            keyring_at(folder)
        dice = Random(-1 - plan.seed)
        weights = prunable(KINDS[plan.kind].host()) if dice.random() < 0.15 else []
        self._dice, self._weights, self._is_eager = dice, weights, dice.choice([0.5, 0.8, 1.0])
        self._digests = [] if plan.taught is None else plan.taught.digests(plan.kind, folder / "known")
        self._ranks = Ranks(plan, folder)
        self.said: list[Said] = []

    def live(self, turns: Sequence[Turn] = ()) -> None:
        """Wrong where something is not as it must be. `turns`: these, and no drawn ones."""
        try:
            self._hear()
            self._orders = self._drawing()
            for number in range(1, self.plan.num_steps + 1) if not turns else range(len(turns)):
                turn = turns[number] if turns else self.draw(number)
                self.turns.append(turn)
                self._ranks.tell(turn)
                self._hear()
            self._ranks.tell(Turn(Act(0), ends=True))
            self._hear()
        finally:
            self._ranks.close()

    def _drawing(self) -> Orders | WideOrders:
        said, plan = self.said[0], self.plan
        plain = Orders(self._dice, said.sites, plan.blueprints, self._weights)
        if not plan.prunes:
            return plain
        return WideOrders(Random(f"orders {plan.seed}"), Wide(prunes=True), plain, said.units)

    def _hear(self) -> None:
        one, *others = self.said = self._ranks.hear()
        for other in others:
            require(one.step == other.step, f"one stands before step {one.step}, the other before {other.step}")
            require(one.went == other.went, "a step was left out on one rank alone")
            require([*map(answer, one.receipts)] == [*map(answer, other.receipts)], f"{one.receipts} {other.receipts}")
            odd = otherwise(one.sums, other.sums)
            require(not odd, f"ranks differ in {odd}")
        compare([each.gradients for each in self.said])

    def draw(self, number: int) -> Turn:
        """For the next step, given the stages that seeds are in."""
        dice = self._dice
        resumes = self.plan.checkpoints > 0 and dice.random() < 0.06
        prefetching = dice.choice([(0,), (1,), (0, 1)])
        wraps = self.plan.sharing.is_ddp and dice.random() < 0.06 and self.said[0].went  # else DDP still waits
        act = self._act(number) if not resumes else Act(number)
        return Turn(act, prefetching, wraps, resumes, self._torn() if resumes else (), self._accuracies())

    def _torn(self) -> tuple[int, ...]:
        """Ranks whose newest checkpoint was not written to its end."""
        if self.plan.seed < PRUNES_FROM or self._dice.random() < 0.5:
            return ()
        ranks = range(self.plan.more.world_size)
        return tuple(self._dice.sample(ranks, self._dice.choice([1, 1, len(ranks)])))

    def _accuracies(self) -> tuple[float, ...]:
        if not self.plan.prunes or self._dice.random() > 0.15:
            return ()
        return tuple(self._dice.choice([0.9, 0.89, 0.5]) for _ in range(self.plan.more.world_size))

    def _act(self, number: int) -> Act:
        dice, said = self._dice, self.said[0]
        if dice.random() > self._is_eager:
            return Act(number, epoch_ends=dice.random() < 0.05)
        if dice.random() < 0.1:
            return Act(number, snapshot=True)
        if said.held and dice.random() < 0.08:
            return Act(number, goes_back=dice.choice([*said.held, *said.held, 9999]))
        stages = {seed_id: stage for seed_id, (stage, _) in said.stages.items()}
        commands = [self._orders.draw(stages) for _ in range(dice.choice([1, 1, 1, 2, 4]))]
        if self._digests and dice.random() < 0.3:
            commands.append(registers(dice.choice(self._digests)))
        requests = list(self._requests()) if dice.random() < 0.6 else []
        prefetches = (dice.choice(said.sites), dice.choice(self.plan.blueprints))
        return Act(
            number,
            [each for each in commands if not self._harms(fossilized(each))],
            requests,
            snapshot=dice.random() < 0.05,
            epoch_ends=dice.random() < 0.1,
            prefetches=prefetches if dice.random() < 0.1 else None,
        )

    def _requests(self) -> Iterator[pb.SeedRequest]:
        """One for each seed, whichever rank asked; culls first."""
        asked = [each for said in self.said for each in said.requests]
        asked.sort(key=lambda each: each.operation != pb.SeedOperation.SEED_OP_CULL)
        met = set[str]()
        for each in asked:
            if each.seed_id not in met and not (each.operation == FOSSILIZE and self._harms(each.seed_id)):
                met.add(each.seed_id)
                yield each

    def _harms(self, seed_id: str) -> bool:
        return self.said[0].stages.get(seed_id, (0, ""))[1] in HARMFUL


def answer(receipt: pb.CommandReceipt) -> tuple[object, ...]:
    """What two ranks must say alike."""
    evidence = {name: repr(value) for name, value in receipt.evidence.items()}
    return receipt.command_id, receipt.status, receipt.reason, receipt.stage, receipt.gate, receipt.step, evidence
