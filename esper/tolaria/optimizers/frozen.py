"""Parameters of fossils that the host's optimizer can't step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch


class Frozen:
    """They want no gradient while they are the host's: one that nobody steps or clears would add up for ever."""

    def __init__(self) -> None:
        self.parameters: list[torch.nn.Parameter] = []

    def freeze(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = [*dict.fromkeys([*self.parameters, *parameters])]
        for parameter in self.parameters:
            parameter.requires_grad_(False)

    def leave_out(
        self, parameters: Sequence[torch.nn.Parameter], takes: Callable[[torch.Tensor], bool]
    ) -> list[torch.nn.Parameter]:
        """Freeze those that it doesn't take; returns the others. What its blueprint has frozen is in neither."""
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        self.freeze(parameter for parameter in learning if not takes(parameter))
        return [parameter for parameter in learning if takes(parameter)]

    def thaw(self, name_of: Callable[[torch.Tensor], str]) -> None:
        """Those that have left the model again are a seed's."""
        for parameter in self.parameters:
            parameter.requires_grad_(not name_of(parameter))
        self.parameters = [parameter for parameter in self.parameters if not parameter.requires_grad]
