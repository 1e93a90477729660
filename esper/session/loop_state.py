"""State of the loop's schedulers and scaler, kept in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import structlog
import torch
from torch.optim.lr_scheduler import LRScheduler

from esper.errors import SettingError
from esper.tolaria.checkpoints.tree import pack

log = structlog.get_logger()

KIND, STATE = "kind", "state"

Keeper: TypeAlias = LRScheduler | torch.amp.GradScaler


class LoopState:
    """Schedulers and scaler that attach() was given: a process that resumes goes on with them as they were left.

    One begins anew where its state is no data, as that of a script's own class may be, or where the script has another
    in its place; either is said in the log.
    """

    def __init__(self, schedulers: Sequence[LRScheduler] = (), scaler: torch.amp.GradScaler | None = None) -> None:
        self._keepers: dict[str, Keeper] = {f"scheduler {number}": each for number, each in enumerate(schedulers)}
        if scaler is not None:
            self._keepers["scaler"] = scaler
        self._refused = set[str]()

    def state_dict(self) -> dict[str, Any]:
        kept = {name: {KIND: _kind(keeper), STATE: keeper.state_dict()} for name, keeper in self._keepers.items()}
        return {name: each for name, each in kept.items() if self._is_data(name, each[STATE])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, keeper in self._keepers.items():
            kept = state.get(name, {KIND: "nothing of it"})
            if kept[KIND] != _kind(keeper):
                log.warning("loop.begins_anew", what=name, here=_kind(keeper), checkpoint=kept[KIND])
            elif kept[STATE] and keeper.state_dict():  # a scaler that is disabled has none
                keeper.load_state_dict(kept[STATE])

    def _is_data(self, name: str, state: Any) -> bool:
        try:
            pack(state)
        except SettingError as error:
            if name not in self._refused:
                self._refused.add(name)
                log.warning("loop.unkept", what=name, reason=str(error), effect="it begins anew where a run resumes")
            return False
        return True


def _kind(keeper: object) -> str:
    """Its class, with those of the schedulers that it runs."""
    inner = ", ".join(_kind(each) for each in getattr(keeper, "_schedulers", ()))
    return f"{type(keeper).__name__}({inner})" if inner else type(keeper).__name__
