"""Draws what is published to a run, and seals it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import cast

from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.garden.orders import Orders, prunable
from tests.garden.rare import EVERY
from tests.grove.taught import registers
from tests.replayed.plan import Plan
from tests.replayed.streams import Streams
from tests.replayed.view import View
from tests.session_kit import Command


class Author:
    """A controller, and whoever else puts something on its streams."""

    def __init__(
        self, dice: Random, streams: Streams, keyring: RoleKeyring, plan: Plan, digests: Sequence[str]
    ) -> None:
        """`digests` are of teachers, most of them there."""
        self._digests = digests
        self.dice, self.streams, self._prunes = dice, streams, plan.pruning is not None
        self._goes_back = plan.goes_back
        self._sealers = {
            role: Sealer(keyring, role, "gardener", clock_ns=streams.now_ns)
            for role in (Role.CONTROLLER, Role.OPTIMIZER)
        }
        self._published: list[tuple[str, bytes]] = []
        self._num_commands = 0
        kind = EVERY[plan.kind]
        weights = prunable(kind.host()) if dice.random() < 0.2 or self._prunes else []
        self._orders = Orders(dice, kind.sites, plan.blueprints, weights)

    def publish(self, view: View) -> None:
        """What fits a run that stands so, as a rule."""
        dice = self.dice
        kind = dice.random()
        if kind < 0.04 and self._published:
            self.streams.add(*dice.choice(self._published))  # once more, the very same
        elif kind < 0.06:
            self.streams.add(dice.choice(["commands", "optimizer"]), dice.randbytes(dice.choice([0, 5, 200])))
        elif kind < 0.06 + self._goes_back:
            self._send(self._rollback(view), view)
        elif kind < 0.10 + self._goes_back:
            self._send(self._of_run(), view)
        elif self._digests and kind > 0.85:
            self._send(registers(self.dice.choice(self._digests)), view)
        elif self._prunes and kind < 0.26 + self._goes_back:
            self._send(self._of_pruning(), view)
        else:
            self._send(self._orders.draw(view.stages), view)

    def resume(self, view: View) -> None:
        """Have a paused run go on."""
        self._send(pb.AdaptationCommand(version=1, pause_command=pb.PauseCommand(resume=True)), view)

    def _rollback(self, view: View) -> Command:
        step = self.dice.choice([0, 0, *view.held, *view.held, 9999])
        back = pb.RollbackCommand(target_step=step, emergency=self.dice.random() < 0.3, reason="drawn")
        return pb.AdaptationCommand(version=1, rollback_command=back)

    def _of_pruning(self) -> Command:
        if self.dice.random() < 0.7:
            return self._orders._prune({})
        phase = cast("pb.PruningPhase", self.dice.choice(pb.PruningPhase.values()))
        asked = pb.StructuralPruningRequest(request_id=f"p{self._num_commands}", phase=phase)
        return pb.AdaptationCommand(version=1, structural_pruning=asked)

    def _of_run(self) -> Command:
        if self.dice.random() < 0.3:
            halt = pb.EmergencyCommand(level=pb.EmergencyLevel.EMERGENCY_HALT, reason="drawn")
            return pb.AdaptationCommand(version=1, emergency_command=halt)
        pause = pb.PauseCommand(resume=self.dice.random() < 0.2)
        return pb.AdaptationCommand(version=1, pause_command=pause)

    def _send(self, command: Command, view: View) -> None:
        said = type(command)()
        said.CopyFrom(command)  # type: ignore[arg-type]
        self._num_commands += 1
        said.command_id = f"c{self._num_commands}"
        is_optimizer = isinstance(said, pb.OptimizerCommand)
        if isinstance(said, pb.AdaptationCommand):
            said.command_type = TYPES[cast(str, said.WhichOneof("command"))]
            said.priority = pb.MessagePriority.MESSAGE_PRIORITY_NORMAL
        sealer = self._sealers[Role.OPTIMIZER if is_optimizer else Role.CONTROLLER]
        sealed = sealer.seal(said, deadline=self._deadline(view))
        stream = "optimizer" if is_optimizer else "commands"
        self._published.append((stream, sealed))
        self.streams.add(stream, sealed)

    def _deadline(self, view: View) -> tuple[DeadlineKind, int]:
        match self.dice.randrange(12):
            case 0:
                return DeadlineKind.STEP, view.step + self.dice.choice([0, 4, 9, 30])
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
