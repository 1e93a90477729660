"""Which generation an optimizer is, and which commands were carried out already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.owners import HOST


@dataclass
class Standing:
    """What no rollback rewinds and a restart must know. Knows no optimizers.

    A lost receipt makes a controller publish again, under another seal. With an expected step, a repeat is told from
    a new wish: the same step with the same content is answered and not done again, an earlier one is out of date.
    """

    generations: dict[str, int] = field(default_factory=lambda: {HOST: 1})
    _newest: dict[tuple[str, int], tuple[int, Content, int]] = field(default_factory=dict)

    def renewed(self, optimizer_id: str) -> None:
        """It begins another generation; the count goes on where an optimizer had been dropped."""
        self.generations[optimizer_id] = self.generations.get(optimizer_id, 0) + 1

    def require_generation(self, command: pb.OptimizerCommand) -> None:
        """RefusedError where the command names another one than the present."""
        wanted, name = command.optimizer_generation, command.optimizer_id or HOST
        present = self.generations.get(name, 0)
        if wanted and wanted != present:
            detail = f"optimizer {name!r} is at generation {present}; the command expects {wanted}"
            raise RefusedError(pb.ReasonCode.REASON_WRONG_GENERATION, detail)

    def met(self, command: pb.OptimizerCommand) -> str:
        """Says when the very command was carried out; empty where it is a new one. RefusedError where it is too old."""
        known = self._newest.get(_key(command))
        if not command.expected_step or known is None or command.expected_step > known[0]:
            return ""
        expected, content, step = known
        if command.expected_step == expected and content == _content(command):
            return f"carried out before step {step}; a repeat changes nothing"
        detail = f"expected_step is {command.expected_step}; one of {expected} was carried out before step {step}"
        raise RefusedError(pb.ReasonCode.REASON_UNEXPECTED_STEP, detail)

    def note(self, command: pb.OptimizerCommand, step: int) -> None:
        """The command was carried out before `step`."""
        if command.expected_step:
            self._newest[_key(command)] = (command.expected_step, _content(command), step)

    def dump(self) -> dict[str, Any]:
        """As plain data."""
        return {"generations": dict(self.generations), "carried_out": dict(self._newest)}

    def load(self, dumped: Mapping[str, Any]) -> None:
        """The inverse of `dump`."""
        self.generations, self._newest = dict(dumped["generations"]), dict(dumped["carried_out"])


Content = tuple[int, tuple[tuple[str, float], ...]]


def _key(command: pb.OptimizerCommand) -> tuple[str, int]:
    return command.optimizer_id, int(command.command_type)


def _content(command: pb.OptimizerCommand) -> Content:
    return command.optimizer_generation, tuple(sorted(command.hyperparameters.items()))
