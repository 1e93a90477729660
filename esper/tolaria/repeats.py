"""Which commands were carried out already, told by the step that they expect."""

from __future__ import annotations

from dataclasses import dataclass, field

from esper.errors import RefusedError
from esper.leyline import contracts as pb

Content = tuple[int, tuple[tuple[str, float], ...]]


@dataclass
class Repeats:
    """The newest expected step carried out per optimizer and kind of command. Knows no optimizers.

    A lost receipt makes a controller publish again, under another seal. With an expected step, a repeat is told from
    a new wish: the same step with the same content is answered and not done again, an earlier one is out of date.
    """

    _newest: dict[tuple[str, int], tuple[int, Content, int]] = field(default_factory=dict)

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
        if command.expected_step:
            self._newest[_key(command)] = (command.expected_step, _content(command), step)


def _key(command: pb.OptimizerCommand) -> tuple[str, int]:
    return command.optimizer_id, command.command_type


def _content(command: pb.OptimizerCommand) -> Content:
    return command.optimizer_generation, tuple(sorted(command.hyperparameters.items()))
