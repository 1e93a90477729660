"""One run, drawn: commands and troubles come as it trains, and at last it ends in order."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import cast

from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.session import Session
from tests.garden.hosts import KINDS
from tests.garden.loops import Loop
from tests.garden.orders import Orders, prunable
from tests.replayed.leader import Leader
from tests.replayed.plan import Plan
from tests.replayed.rank import ENDS, Killed, Rank
from tests.replayed.script import Kept, join, train
from tests.replayed.streams import Streams
from tests.session_kit import Command

MOST_LIVES = 6


class Life:
    """A run's streams and who reads them, until it has ended."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.run_id = plan, folder, f"replayed-{plan.seed:08x}"
        self.master = MasterKeyring.new(time.time_ns() - 10**9)
        self.keyring = folder / "worker.json"
        self.master.derive(self.run_id, [Role.WORKER]).save(self.keyring)
        self.streams = Streams()
        self.leader = Leader(self.streams, self.master, self.run_id, plan.snapshots)
        self.streams.keep()
        self.guards = {name: ReplayGuard() for name in ("commands", "optimizer", "decisions")}
        self.kept, self.told = Kept(), list[str]()
        self.dice = Random(-1 - plan.seed)
        self._num_looks = self._num_commands = 0
        self._paused_since: int | None = None
        self.rank: Rank | None = None
        self.session: Session | None = None
        keys = self.master.derive(self.run_id, [Role.CONTROLLER, Role.OPTIMIZER])
        roles = (Role.CONTROLLER, Role.OPTIMIZER)
        self._sealers = {role: Sealer(keys, role, "gardener", clock_ns=self.streams.now_ns) for role in roles}
        self._published: list[tuple[str, bytes]] = []
        host = KINDS[plan.kind].host()
        weights = prunable(host) if self.dice.random() < 0.2 else []
        self._orders = Orders(self.dice, KINDS[plan.kind].sites, plan.blueprints, weights)

    def live(self) -> None:
        """Train through every life to an end in order."""
        for _ in range(MOST_LIVES):
            self.rank = Rank(self.streams, self.leader, self.master, self.run_id, self.guards)
            self.rank.live, self.rank.dice = self._look, self.dice
            try:
                train(self.plan, self.rank, self._join, self.kept, self._is_over)
                self.leader.turn()
                return
            except ENDS as error:
                self.told.append(f"life ends at {self._step()}: {type(error).__name__} {error}")
                self.rank.live, self.rank.alive = (lambda: None), False
                self.rank.portray = None
                if self.session is not None:
                    self.session.abandon()
                self._paused_since = None
        raise AssertionError(f"it never ended: {self.told}")

    def _join(self, loop: Loop) -> Session:
        assert self.rank is not None
        self.session = join(self.plan, loop, self.rank, self.folder / "checkpoints", self.keyring, self.run_id)
        return self.session

    def _step(self) -> int:
        return 0 if self.session is None else self.session.step_number

    def _is_over(self) -> bool:
        return self._step() > self.plan.num_steps

    def _look(self) -> None:
        self._num_looks += 1
        trouble = self.plan.troubles.get(self._num_looks)
        if trouble is not None:
            self.told.append(f"{trouble} before {self._step()}")
            self._befall(trouble)
        if self.dice.random() < self.plan.eager:
            for _ in range(self.dice.choice([1, 1, 1, 3])):
                self._publish()
        self._resume_in_time()
        if self.dice.random() < 0.1:
            self.streams.keep()

    def _befall(self, trouble: str) -> None:
        rank = self.rank
        assert rank is not None
        match trouble:
            case "leader":
                self.leader.lead()
            case "runtime":
                rank.alive = False
            case "trainer":
                raise Killed(trouble)
            case "flush" | "fall back":
                self.streams.lose() if trouble == "flush" else self.streams.fall_back()
                rank.connect_anew()
                self.leader.lost()
            case "trim":
                self._trim()
            case "clock":
                self.streams.set_ns += self.dice.choice([-3_600, -90, 90, 3_600]) * 10**9
                self.leader.rule.on_clock_step(0)

    def _trim(self) -> None:
        """Below the oldest checkpoint that is kept."""
        checkpoints = None if self.session is None else self.session.checkpoints
        if checkpoints is None:
            return
        positions = [log.positions for _, _, log in checkpoints._held.values()]
        for name in ("commands", "optimizer", "decisions"):
            if positions and all(name in each for each in positions):
                self.streams.trim(name, min(each[name] for each in positions))

    def _resume_in_time(self) -> None:
        if self.session is None or not self.session.exchange.boundary.paused_before:
            self._paused_since = None
            return
        self._paused_since = self._paused_since or self._num_looks
        if self._num_looks - self._paused_since > 5:
            self._send(pb.AdaptationCommand(version=1, pause_command=pb.PauseCommand(resume=True)))

    def _publish(self) -> None:
        dice, stages = self.dice, dict[str, int]()
        if self.session is not None:
            stages = {each.seed_id: int(each.stage) for each in self.session.executor.reports()}
        kind = dice.random()
        if kind < 0.04 and self._published:
            self.streams.add(*dice.choice(self._published))  # once more, the very same
        elif kind < 0.06:
            self.streams.add(dice.choice(["commands", "optimizer"]), dice.randbytes(dice.choice([0, 5, 200])))
        elif kind < 0.14:
            self._send(self._rollback())
        elif kind < 0.18:
            self._send(self._of_run())
        else:
            self._send(self._orders.draw(stages))

    def _rollback(self) -> Command:
        held = [] if self.session is None else [ref.step for ref in self.session.portrait.states.refs()]
        step = self.dice.choice([0, 0, *held, *held, 9999])
        back = pb.RollbackCommand(target_step=step, emergency=self.dice.random() < 0.3, reason="drawn")
        return pb.AdaptationCommand(version=1, rollback_command=back)

    def _of_run(self) -> Command:
        if self.dice.random() < 0.3:
            halt = pb.EmergencyCommand(level=pb.EmergencyLevel.EMERGENCY_HALT, reason="drawn")
            return pb.AdaptationCommand(version=1, emergency_command=halt)
        pause = pb.PauseCommand(resume=self.dice.random() < 0.2)
        return pb.AdaptationCommand(version=1, pause_command=pause)

    def _send(self, command: Command) -> None:
        said = type(command)()
        said.CopyFrom(command)  # type: ignore[arg-type]
        self._num_commands += 1
        said.command_id = f"c{self._num_commands}"
        is_optimizer = isinstance(said, pb.OptimizerCommand)
        if isinstance(said, pb.AdaptationCommand):
            said.command_type = TYPES[cast(str, said.WhichOneof("command"))]
            said.priority = pb.MessagePriority.MESSAGE_PRIORITY_NORMAL
        sealer = self._sealers[Role.OPTIMIZER if is_optimizer else Role.CONTROLLER]
        sealed = sealer.seal(said, deadline=self._deadline())
        stream = "optimizer" if is_optimizer else "commands"
        self._published.append((stream, sealed))
        self.streams.add(stream, sealed)

    def _deadline(self) -> tuple[DeadlineKind, int]:
        match self.dice.randrange(12):
            case 0:
                return DeadlineKind.STEP, self._step() + self.dice.choice([0, 4, 9, 30])
            case 1:
                return DeadlineKind.TIME_NS, self.streams.now_ns() + self.dice.choice([-1, 50, 5000]) * 10**6
            case 2:
                return DeadlineKind.EPOCH, self.dice.choice([0, 1, 9])
        return DeadlineKind.NONE, 0


_Kind = pb.CommandType
TYPES = {
    "seed_command": _Kind.COMMAND_SEED,
    "optimizer_adjustment": _Kind.COMMAND_OPTIMIZER,
    "circuit_breaker": _Kind.COMMAND_CIRCUIT_BREAKER,
    "rollback_command": _Kind.COMMAND_ROLLBACK,
    "pause_command": _Kind.COMMAND_PAUSE,
    "emergency_command": _Kind.COMMAND_EMERGENCY,
    "structural_pruning": _Kind.COMMAND_STRUCTURAL_PRUNING,
    "pruning_masks": _Kind.COMMAND_PRUNING_MASKS,
}
